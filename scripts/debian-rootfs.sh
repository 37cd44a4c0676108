#!/usr/bin/env bash
# Makes a Debian root file system with python3 once, as a tar in .cache, and prints its path.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/.cache/debian.tar
if [ ! -s "$out" ]; then
  mkdir -p .cache
  part=$PWD/.cache/debian.$$.tmp.tar
  trap 'rm -f "$part"' EXIT
  mmdebstrap --variant=minbase --include=python3,iproute2,procps,kmod,e2fsprogs bookworm "$part" >&2
  mv "$part" "$out"
fi
echo "$out"
