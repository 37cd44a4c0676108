#!/usr/bin/env bash
# Installs the Debian packages named on the command line (default: what the tests, the demo and the benches use) where they are missing.
set -euo pipefail
pkgs=("$@")
[ ${#pkgs[@]} -gt 0 ] || pkgs=(bubblewrap crun runc mmdebstrap busybox-static qemu-system-x86 cpio xz-utils e2fsprogs iproute2 gcc libc6-dev git python3 python3-pip python3-venv curl jq ca-certificates)
missing=()
for p in "${pkgs[@]}"; do
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || { echo "deps: missing: ${missing[*]}; run as root, or: sudo apt-get install ${missing[*]}" >&2; exit 1; }
  echo "deps: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
command -v go >/dev/null || { echo "deps: Go is missing: install Go 1.26 or newer (https://go.dev/doc/install) and put it on PATH" >&2; exit 1; }
