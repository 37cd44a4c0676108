#!/usr/bin/env bash
# Makes the root file system of the code interpreter's template once, as a tar in .cache, and prints its path:
# Debian with what E2B's SDKs expect in a sandbox (user, sudo, git, curl, ss), Python's kernel, pandas, matplotlib.
# The packages are fetched here, because boxes have no network.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=examples/code-interpreter/requirements.txt
out=$PWD/.cache/code-interpreter-$(cat "$requirements" "$0" | sha256sum | cut -c1-12).tar
if [ ! -s "$out" ]; then
  mkdir -p .cache
  tmp=$(mktemp -d .cache/code-interpreter.XXXXXX)
  part=$PWD/.cache/code-interpreter.$$.tmp.tar
  trap 'rm -rf "$tmp" "$part"' EXIT
  python3 -m venv "$tmp/venv"
  "$tmp/venv/bin/pip" install --quiet --disable-pip-version-check --target "$tmp/site" --only-binary=:all: \
    --implementation cp --python-version 3.11 --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 -r "$requirements" >&2
  # The tests of packages are most of their files; nobody runs them here.
  find "$tmp/site" -type d \( -name tests -o -name test \) -prune -exec rm -rf {} +
  find "$tmp/site" -name __pycache__ -prune -exec rm -rf {} +
  rm -rf "$tmp/site/bin"
  site=$PWD/$tmp/site mmdebstrap --variant=minbase --include=python3,iproute2,procps,sudo,git,curl,ca-certificates \
    --customize-hook='chroot "$1" useradd --create-home --uid 1000 --shell /bin/bash user' \
    --customize-hook='echo "user ALL=(ALL) NOPASSWD: ALL" >"$1/etc/sudoers.d/user" && chmod 440 "$1/etc/sudoers.d/user"' \
    --customize-hook='mkdir -p "$1/opt/code-interpreter" && cp -r "$site" "$1/opt/code-interpreter/site"' \
    --customize-hook='chroot "$1" python3 -m compileall -q /opt/code-interpreter/site || true' \
    bookworm "$part" >&2
  rm -f .cache/code-interpreter-*.tar
  mv "$part" "$out"
fi
echo "$out"
