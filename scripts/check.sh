#!/usr/bin/env bash
# The one test command: installs what is missing, builds, lints, runs every test, with real boxes
# where the machine can, under the race detector for what is concurrent, and in QEMU for cgroup v2.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/deps.sh
make build
make lint
go test -count=1 -timeout 20m ./...
make test-race
make test-cgroup2
