#!/usr/bin/env bash
# Makes a Debian root file system with python3 once, as a tar in .cache, and prints its path.
# Usage: scripts/debian-rootfs.sh [release]     (default: bookworm)
set -euo pipefail
cd "$(dirname "$0")/.."
release=${1:-bookworm}
out=$PWD/.cache/debian-$release.tar
if [ ! -s "$out" ]; then
  mkdir -p .cache
  part=$PWD/.cache/debian-$release.$$.tmp.tar
  trap 'rm -f "$part"' EXIT
  mmdebstrap --variant=minbase --include=python3,iproute2,procps,kmod,e2fsprogs "$release" "$part" >&2
  mv "$part" "$out"
fi
echo "$out"
