#!/usr/bin/env bash
# Formatting, vet, staticcheck, the wire's lint, staleness of generated code.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=$(git ls-files -z -- '*.go' | grep -zv '^gen/' | xargs -0 gofmt -l)
[ -z "$bad" ] || { echo "not gofmt-ed:" >&2; echo "$bad" >&2; exit 1; }
go vet ./...
go tool -modfile=tools/go.mod staticcheck ./...
scripts/check-generated.sh
