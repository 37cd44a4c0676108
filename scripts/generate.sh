#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Regenerates everything that is generated: gen/ from proto/ (buf), the typed SQL
# (sqlc), and what packages say with go:generate. Needs no network once the
# modules are in the module cache.
set -euo pipefail
cd "$(dirname "$0")/.."

tool() { go tool -modfile=tools/go.mod "$@"; }

tool buf lint
tool buf generate
tool sqlc generate -f internal/store/sqlc.yaml
go generate ./internal/...
