#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the guest and the spawner, static and small, to where bin/dsec embeds
# them. A file is replaced only when it differs, so that go's cache holds.
set -euo pipefail
cd "$(dirname "$0")/.."
out=internal/runtime/native/embedded
export CGO_ENABLED=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for name in dsec-guest dsec-spawner; do
  # Go 1.26's collector keeps marks at the end of each span: pages that a guest, which allocates little and hardly ever
  # collects, would touch for nothing (0.06 MiB in each idle box). A Go that has no other collector refuses the word: then this goes.
  if [ "$name" = dsec-guest ]; then export GOEXPERIMENT=nogreenteagc; else unset GOEXPERIMENT; fi
  go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$tmp/$name.bin" "./cmd/$name"
  cmp -s "$tmp/$name.bin" "$out/$name.bin" || mv "$tmp/$name.bin" "$out/$name.bin"
done
