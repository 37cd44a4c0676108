#!/usr/bin/env bash
# The one test command: installs what is missing, builds, lints, runs every test, with real boxes
# where the machine can, under the race detector for what is concurrent, the demo, and all that makes
# boxes again in QEMU for cgroup v2. About 30 minutes on two cores; stops at the first step that fails.
# Usage: scripts/check.sh [step...]     (default: all, in this order)
set -euo pipefail
cd "$(dirname "$0")/.."

step_deps() { scripts/deps.sh; }
step_build() { make -s build; }
step_lint() { make -s lint; }
step_test() { go test -count=1 -timeout 20m ./...; }
step_race() { make -s test-race; }
step_demo() { scripts/demo.sh; }
step_cgroup2() { make -s test-cgroup2; }

[ $# -gt 0 ] || set -- deps build lint test race demo cgroup2
took=()
for step in "$@"; do
  declare -F "step_$step" >/dev/null || { echo "check: no step $step" >&2; exit 2; }
  echo "check: $step" >&2
  begun=$SECONDS
  "step_$step" || { echo "check: $step FAILED after $((SECONDS - begun)) s" >&2; exit 1; }
  took+=("$step $((SECONDS - begun)) s")
done
printf 'check: passed in %d s:' "$SECONDS" >&2
printf ' %s;' "${took[@]}" >&2
echo >&2
