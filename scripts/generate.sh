#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Regenerates everything that is generated: gen/ from proto/ (buf), and what
# packages say with go:generate (typed SQL, tables, schemas). Needs no network
# once the modules are in the module cache.
set -euo pipefail
cd "$(dirname "$0")/.."

go tool -modfile=tools/go.mod buf lint
go tool -modfile=tools/go.mod buf generate
# The embedded programs are built, not generated: make embedded.
go generate -skip build-embedded ./internal/...
