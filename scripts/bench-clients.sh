#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures the Python client beside the e2b package on one server: one asyncio process,
# SESSIONS sessions (1000), OPS operations each (20; E2B_OPS for e2b), PASSES passes (1), alternated. Needs root,
# python3 and bin/dsec. CLIENTS chooses among dsec and e2b. Prints a line of JSON a pass; see sdk/python/bench/throughput.py.
set -euo pipefail
cd "$(dirname "$0")/.."

dsec=${DSEC_TEST_BINARY:-$PWD/bin/dsec}
venv=$PWD/.cache/python/bench
listen=127.0.0.1:${PORT:-7199}

[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check ./sdk/python e2b==2.63.0
rootfs=$(scripts/debian-rootfs.sh)

work=$(mktemp -d /tmp/dsec-bench.XXXXXX)
server=
cleanup() {
  [ -z "$server" ] || { kill "$server" && wait "$server" || true; }
  "$dsec" down --data-dir "$work" > /dev/null
  rm -rf "$work"
}
trap cleanup EXIT

"$dsec" up --data-dir "$work" --listen "$listen" --log-level error 2> "$work/log" &
server=$!
until curl -sf "http://$listen/healthz" > /dev/null; do
  kill -0 "$server" || { cat "$work/log" >&2; exit 1; }
  sleep 0.1
done

printf 'sandbox_spec:\n  mem_limit: 16Mi\n  fs: {writable_size_limit: 16Mi, tmp_size_limit: 1Mi}\n' > "$work/spec.yaml"
env -u DSEC_API_KEY "$dsec" --url "unix://$work/dsec.sock" template import --quiet bench "tar:$rootfs" --spec "$work/spec.yaml" > /dev/null

export DSEC_URL=http://$listen DSEC_API_KEY E2B_API_URL=http://$listen E2B_SANDBOX_URL=http://$listen E2B_API_KEY
DSEC_API_KEY=$(cat "$work/api-key")
E2B_API_KEY=$DSEC_API_KEY

code=0
for _ in $(seq "${PASSES:-1}"); do
  for client in ${CLIENTS:-dsec e2b}; do
    ops=${OPS:-20}
    [ "$client" != e2b ] || ops=${E2B_OPS:-$ops}
    "$venv/bin/python" -P sdk/python/bench/throughput.py --client "$client" --template bench \
      --sessions "${SESSIONS:-1000}" --ops "$ops" || code=1
  done
done
exit $code
