#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails when generated code differs from what scripts/generate.sh makes of its
# sources. It works on a copy, so the working tree is not touched.
set -euo pipefail
cd "$(dirname "$0")/.."

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' f; do
  if [ -e "$f" ]; then printf '%s\0' "$f"; fi
done | tar --null -cf - -T - | tar -xf - -C "$copy"
cp -a "$copy" "$copy.before"
trap 'rm -rf "$copy" "$copy.before"' EXIT

"$copy/scripts/generate.sh"
if ! diff -r "$copy.before" "$copy"; then
  echo "generated code is stale: run 'make generate' and commit what it changes" >&2
  exit 1
fi
