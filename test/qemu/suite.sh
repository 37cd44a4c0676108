#!/bin/bash
# Runs inside the virtual machine, as root: every compiled test package, one line each. A test that skips
# without being listed in `skips` fails, and so does a package that leaves something on the machine.
set -u
export DSEC_TEST_EXPECT_CGROUP=v2 DSEC_TEST_EXPECT_MOUNTS=attached DSEC_TEST_SLOW=5 DSEC_TEST_KILLS=4
export DSEC_TEST_BINARY=/usr/bin/dsec DSEC_TEST_ROOTFS=/srv/debian.tar
verbose=$(cat /suite/verbose)

# What there is of processes (no kernel threads, none of this script's), mounts, loop devices, temporary files, cgroups.
inventory() {
  for s in /proc/[0-9]*/stat; do
    read -r stat 2>/dev/null < "$s" || continue
    rest=${stat##*) }; set -- $rest; pid=${stat%% *}
    # state ppid pgrp session; kernel threads are 2 and its children; this script's session is its own
    [ "$pid" = 1 ] || [ "$pid" = 2 ] || [ "$2" = 2 ] || [ "$4" = "$session" ] || echo "process $pid: $(tr '\0' ' ' < "/proc/$pid/cmdline") (${stat%)*}), $1"
  done
  cut -d' ' -f5 /proc/self/mountinfo | sort | sed 's/^/mount /'
  for l in /sys/block/loop*/loop/backing_file; do [ ! -e "$l" ] || echo "loop $(cat "$l")"; done
  find /tmp -mindepth 1 -maxdepth 1 -printf 'file %p\n'
  find /sys/fs/cgroup -mindepth 1 -type d | sed 's/^/cgroup /'
}
session=$(ps -o sess= -p $$ | tr -d ' ')
inventory > /run/before

allowed() { # package test: a skip that is listed
  while read -r pkg test _; do
    case $pkg in '#'* | '') continue ;; esac
    [ "$pkg" = "$1" ] && [[ $2 =~ ^$test$ ]] && return 0
  done < /suite/skips
  return 1
}

bad=() passed=0 skipped=0
while read -r p pattern; do
  log=/run/log start=$SECONDS why=()
  : > $log
  if [ "$verbose" = 1 ]; then tail -f $log | grep --line-buffered -E '^(=== RUN| *--- )' & fi
  # Emulation stretches time unevenly: a package that fails gets one more chance, and the log says so.
  for attempt in 1 2; do
    (cd "/suite/src/$p" && setsid -w "/suite/bin/${p//\//-}.test" -test.v -test.short -test.timeout 6m -test.run "$pattern") > $log 2>&1 < /dev/null
    code=$?
    [ $code != 0 ] && [ $attempt = 1 ] || break
    echo "again $p: $(grep -E '^ *--- FAIL' $log | tr -s ' \n' ' ')"
  done
  [ "$verbose" != 1 ] || kill $(jobs -p)
  [ $code = 0 ] || why+=("exit $code")
  ok=$(grep -cE '^ *--- PASS' $log) skip=$(grep -cE '^ *--- SKIP' $log)
  while read -r t; do allowed "$p" "$t" || why+=("skipped: $t"); done < <(sed -nE 's/^ *--- SKIP: (.*) \([0-9.]+s\)$/\1/p' $log)
  [ "$ok" -gt 0 ] || why+=("nothing ran")
  for i in $(seq 50); do inventory > /run/after; cmp -s /run/before /run/after && break; sleep 0.1; done
  while read -r l; do why+=("left behind: $l"); done < <(diff /run/before /run/after | sed -n 's/^> //p')
  passed=$((passed + ok)) skipped=$((skipped + skip))
  if [ ${#why[@]} = 0 ]; then
    printf 'ok    %-36s %4ds  %d passed, %d skipped\n' "$p" $((SECONDS - start)) "$ok" "$skip"
  else
    bad+=("$p")
    printf 'FAIL  %-36s %4ds\n' "$p" $((SECONDS - start))
    printf '      %s\n' "${why[@]}"
    grep -vE '^(=== (RUN|PAUSE|CONT|NAME)|PASS$| *--- PASS)' $log | tail -n 150 | cut -c 1-600 | sed 's/^/      | /'
  fi
done < /suite/order
if [ ${#bad[@]} = 0 ]; then
  echo "suite: all packages passed: $passed tests, $skipped skipped as listed, nothing left behind, ${SECONDS} s"
else
  echo "suite: FAILED: ${bad[*]} ($passed tests passed, $skipped skipped, ${SECONDS} s)"
  exit 1
fi
