#!/usr/bin/env bash
# Measures what docs/benchmarks.md reports of egress: the way out of boxes, beside loopback and boxes without one in the same run.
# Usage: scripts/bench-egress.sh     (root; about 2.5 minutes; keep the machine quiet; make build first)
set -euo pipefail
cd "$(dirname "$0")/.."
dsec=${DSEC_TEST_BINARY:-$PWD/bin/dsec}
[ -x "$dsec" ] || { echo "bin/dsec is not built: run make build" >&2; exit 1; }
work=$(mktemp -d /tmp/dsec-bench-egress.XXXXXX)
cleanup() { "$dsec" down --data-dir "$work/data" >/dev/null 2>&1 || true; rm -rf "$work"; }
trap cleanup EXIT
n=${N:-300} rounds=${ROUNDS:-5}

echo "== machine: $(nproc) processors, $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg) at the start"
echo "== ways out that are refused (every attempt as root and as user, under three policies)"
go test -count=1 -timeout 170s -v -run 'TestWaysOut' ./test/egress > "$work/out" || { cat "$work/out"; exit 1; }
grep -o '[a-z]* as [a-z]*: [0-9]* attempts.*' "$work/out"
grep -o ' [0-9.]* ms  .*ConnectionRefused' "$work/out" | awk '{print $1}' | sort -n |
  awk '{v[NR]=$1} END {printf "refused connects and datagrams: %d, p50 %s ms, p99 %s ms, slowest %s ms\n", NR, v[int((NR+1)/2)], v[int(NR*.99)], v[NR]}'

echo "== attach on create, through the API: $rounds rounds of $n creates, with and without a network in turns"
mkdir "$work/data"
printf 'network: {egress_policy: deny}\n' > "$work/none.yaml"
printf 'network: {egress_policy: whitelist, allowed_ips: ["203.0.113.0/24"]}\n' > "$work/net.yaml"
for _ in $(seq "$rounds"); do
  for kind in none net; do
    "$dsec" bench create --n "$n" --passes 1 --spec "$work/$kind.yaml" --data-dir "$work/data" -q -o json > "$work/out" 2> "$work/err" || { cat "$work/err"; exit 1; }
    python3 - "$kind" "$work/out" >> "$work/creates" <<'PY'
import json, sys
for line in open(sys.argv[2]):
    r = json.loads(line)
    if r.get("op") in ("create", "destroy"):
        print(sys.argv[1], r["op"], r["p50_ms"], r["p99_ms"], r.get("failures", 0))
PY
  done
done
python3 - "$work/creates" <<'PY'
import statistics, sys
rows = [l.split() for l in open(sys.argv[1])]
def median(kind, op, column):
    return statistics.median(float(r[column]) for r in rows if r[0] == kind and r[1] == op)
for op in ("create", "destroy"):
    a, b = median("none", op, 2), median("net", op, 2)
    print(f"{op}: p50 {a:.2f} ms without, {b:.2f} ms with a network: +{b - a:.2f} ms; p99 {median('none', op, 3):.1f} and {median('net', op, 3):.1f} ms")
print("failures:", sum(int(r[4]) for r in rows))
PY

echo "== in the daemon's own code (load $(cut -d' ' -f1-3 /proc/loadavg))"
go test -count=1 -timeout 170s -run '^$' -bench 'Attach$' -benchtime 300x ./internal/egress/uplink | grep ^Benchmark
go test -count=1 -timeout 170s -run '^$' -bench 'IdleMemory$|Reattach$|Flood$' -benchtime 1x ./internal/egress/uplink | grep ^Benchmark
# Each end of a stream is a process of its own, with one box and with fifty alike; three passes, for their medians.
go test -count=3 -timeout 170s -run '^$' -bench 'Stream$|FiftyBoxes$|ThousandConnections$' -benchtime 1x ./internal/egress/uplink | grep ^Benchmark

echo "== through the API and the real binary (load $(cut -d' ' -f1-3 /proc/loadavg))"
DSEC_TEST_EGRESS_FULL=1 go test -count=1 -timeout 290s -v -run 'TestKillWithManyBoxes|TestStopWithOpen|TestChurn|TestSwitchCuts|TestThousand|TestFlood' ./test/egress > "$work/out" || { cat "$work/out"; exit 1; }
grep -o 'FIGURE .*' "$work/out" | cut -c8-
