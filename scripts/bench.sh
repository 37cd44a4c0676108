#!/usr/bin/env bash
# Measures what docs/benchmarks.md reports: dsec and its peers on one Debian root file system, in one run.
# It is Debian 13's; exec, most of whose time is the image's dynamic linker, is measured on Debian 12's, too.
# Usage: scripts/bench.sh [out.jsonl]     (root; about 15 minutes; keep the machine quiet)
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-.cache/bench.jsonl}
scripts/deps.sh bubblewrap crun runc mmdebstrap
rootfs=$(scripts/debian-rootfs.sh trixie)
rootfs12=$(scripts/debian-rootfs.sh bookworm)
dir=$PWD/.cache/rootfs-trixie
if [ ! -e "$dir/.complete" ]; then
  mkdir -p "$dir" && tar -C "$dir" -xf "$rootfs" --exclude './dev/*' && touch "$dir/.complete"
fi
data=$(mktemp -d /tmp/dsec-bench.XXXXXX)
cleanup() { bin/dsec down --data-dir "$data" >/dev/null 2>&1 || true; rm -rf "$data"; }
trap cleanup EXIT
bin/dsec --data-dir "$data" template import --name debian "tar:$rootfs" >&2
bin/dsec --data-dir "$data" template import --name debian12 "tar:$rootfs12" >&2
bench() { bin/dsec bench "$1" --data-dir "$data" --template debian -o json "${@:2}" | tee -a "$out"; }
: > "$out"
bench create --n 1000 --passes 5 --peer bwrap,bare --rootfs "$dir"
bench create --n 1000 --passes 3 --mode pooled --up-arg "--config=$PWD/scripts/bench-pool.yaml"
bench exec --n 1000 --passes 5
bench exec --n 1000 --passes 5 --template debian12
bench create --n 200 --passes 3 --peer crun,runc --rootfs "$dir"
bench create --n 1000 --passes 3 --pattern burst --mem 16Mi --peer bare
bench create --n 1000 --passes 3 --pattern burst --mem 16Mi --mode pooled --up-arg "--config=$PWD/scripts/bench-pool.yaml"
bench files --n 1000 --passes 5 --size 64Ki
bench files --big 2Gi --spec scripts/bench-big.yaml --n 1 --passes 1
bench density --n 2000 --mem 8Mi --passes 1 --kill-daemon
