#!/bin/bash
# Runs inside the virtual machine, as root: every compiled test package, one line each. A test that skips
# without being listed in `skips` fails, and so does a package that leaves something on the machine. What a
# package leaves is named, then removed: the next one is judged against the machine right before itself.
set -u
export DSEC_TEST_EXPECT_CGROUP=v2 DSEC_TEST_EXPECT_MOUNTS=attached DSEC_TEST_SLOW=5 DSEC_TEST_KILLS=4
export DSEC_TEST_BINARY=/usr/bin/dsec DSEC_TEST_ROOTFS=/srv/debian.tar
verbose=$(cat /suite/verbose) count=$(cat /suite/count) log=/run/log
session=$(ps -o sess= -p $$ | tr -d ' ')

# What there is of processes (no kernel threads, none of this script's), mounts, loop devices, temporary files, cgroups.
inventory() {
  for s in /proc/[0-9]*/stat; do
    read -r stat 2>/dev/null < "$s" || continue
    rest=${stat##*) }; set -- $rest; pid=${stat%% *}
    # state ppid pgrp session; kernel threads are 2 and its children; this script's session is its own
    [ "$pid" = 1 ] || [ "$pid" = 2 ] || [ "$2" = 2 ] || [ "$4" = "$session" ] || echo "process $pid: $(tr '\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null) (${stat%)*}), $1"
  done
  cut -d' ' -f5 /proc/self/mountinfo | sort | sed 's/^/mount /'
  for l in /sys/block/loop*/loop/backing_file; do [ ! -e "$l" ] || { l=${l#/sys/block/}; echo "loop /dev/${l%%/*}"; }; done
  find /tmp -mindepth 1 -maxdepth 1 -printf 'file %p\n'
  find /sys/fs/cgroup -mindepth 1 -type d | sed 's/^/cgroup /'
}

# left gives what is there now and was not before the package; what is still ending gets five seconds.
left() {
  local until=$((SECONDS + 5))
  while inventory > /run/after; ! cmp -s /run/before /run/after; do
    [ $SECONDS -lt $until ] || break
    sleep 0.1
  done
  diff /run/before /run/after | sed -n 's/^> //p'
}

# state tells of what was left what the machine knows about it.
state() {
  while read -r kind name; do
    case $kind in
    process) name=${name%%:*}; echo "process $name waits in $(cat "/proc/$name/wchan" 2>/dev/null), cgroup $(tr '\n' ' ' < "/proc/$name/cgroup")"; sed 's/^/  /' "/proc/$name/stack" ;;
    cgroup) echo "$name: $(cd "$name" && tr '\n' ' ' < cgroup.events), processes: $(tr '\n' ' ' < "$name/cgroup.procs")" ;;
    esac
  done 2>/dev/null
}

# remove ends and removes what was left, so that it cannot fail another package.
remove() {
  local lines; lines=$(cat)
  list() { sed -n "s/^$1 //p" <<< "$lines"; }
  while read -r g; do echo 1 > "$g/cgroup.kill"; echo 0 > "$g/cgroup.freeze"; done < <(list cgroup)
  while read -r pid; do kill -KILL "$pid"; done < <(list process | cut -d: -f1)
  sleep 1
  while read -r m; do umount -l "$m"; done < <(list mount | sort -r)
  while read -r l; do losetup -d "$l"; done < <(list loop)
  while read -r f; do rm -rf --one-file-system "$f"; done < <(list file)
  while read -r g; do rmdir "$g"; done < <(list cgroup | sort -r)
} 2>/dev/null

# watch lets a test binary have its time. One that is stuck is shown as the kernel sees it, asked for its goroutines, and ended.
watch() { # pid seconds
  read -rt "$2" <> <(:) # sleeps
  kill -0 "$1" || return
  echo "--- FAIL: stuck"
  for t in "/proc/$1/task"/*; do echo "thread ${t##*/}: $(cut -d' ' -f3 "$t/stat") $(cat "$t/syscall")"; sed 's/^/  /' "$t/stack"; done
  kill -QUIT "$1"
  read -rt 20 <> <(:)
  kill -KILL "$1"
} >> $log 2>/dev/null

allowed() { # package test: a skip that is listed
  while read -r pkg test _; do
    case $pkg in '#'* | '') continue ;; esac
    [ "$pkg" = "$1" ] && [[ $2 =~ ^$test$ ]] && return 0
  done < /suite/skips
  return 1
}

# attempt runs the package once and sets why: what speaks against it. Go's own time-out dumps every goroutine;
# watch is for a test binary that cannot even do that.
attempt() { # package seconds pattern
  local code lines tests test dog l
  why=() tests="-test.run=$3"
  [ "${3:0:1}" != ! ] || tests="-test.skip=${3:1}"
  : > $log
  inventory > /run/before
  if [ "$verbose" = 1 ]; then tail -n +1 -F $log | grep --line-buffered -E '^(=== RUN| *--- )' & fi
  (cd "/suite/src/$1" && exec setsid "/suite/bin/${1//\//-}.test" -test.v -test.short -test.count "$count" -test.timeout "$2s" "$tests") > $log 2>&1 < /dev/null &
  test=$!
  watch $test $(($2 + 60)) & dog=$!
  wait $test
  code=$?
  kill $dog 2>/dev/null
  [ "$verbose" != 1 ] || kill $(jobs -p) 2>/dev/null
  [ $code = 0 ] || why+=("exit $code: $(grep -E '^ *--- FAIL|^panic: ' $log | tr -s ' \n' ' ')")
  while read -r test; do allowed "$1" "$test" || why+=("skipped: $test"); done < <(sed -nE 's/^ *--- SKIP: (.*) \([0-9.]+s\)$/\1/p' $log)
  ok=$(grep -cE '^ *--- PASS' $log) skip=$(grep -cE '^ *--- SKIP' $log)
  [ "$ok" -gt 0 ] || why+=("nothing ran")
  lines=$(left)
  [ -z "$lines" ] || while read -r l; do why+=("left behind: $l"); done <<< "$lines"
  [ ${#why[@]} -gt 0 ] || return 0
  printf '      %s\n' "${why[@]}" | head -n 30 > /run/report
  head -n 30 <<< "$lines" | state | sed 's/^/      | /' >> /run/report
  # The end of what the tests said; of a time-out, the goroutines that are not just the runtime's.
  sed '/^panic: test timed out/,$d' $log | grep -vE '^(=== (RUN|PAUSE|CONT|NAME)|PASS$| *--- PASS)' | tail -n 100 | cut -c 1-400 | sed 's/^/      | /' >> /run/report
  sed -n '/^panic: test timed out/,$p' $log | head -n 700 | cut -c 1-200 | sed 's/^/      | /' >> /run/report
  remove <<< "$lines"
  return 1
}

bad=() passed=0 skipped=0 again=0
while read -r p limit pattern; do
  start=$SECONDS verdict='ok   '
  # Emulation stretches time unevenly: a package that fails gets one more chance. Both failures are shown.
  if ! attempt "$p" "$limit" "$pattern"; then
    printf 'again %-36s %4ds\n' "$p" $((SECONDS - start)); cat /run/report
    again=$((again + 1))
    attempt "$p" "$limit" "$pattern" || { verdict=FAIL' '; bad+=("$p"); }
  fi
  passed=$((passed + ok)) skipped=$((skipped + skip))
  printf '%s %-36s %4ds  %d passed, %d skipped\n' "$verdict" "$p" $((SECONDS - start)) "$ok" "$skip"
  [ "$verdict" = 'ok   ' ] || cat /run/report
done < /suite/order
if [ ${#bad[@]} = 0 ]; then
  echo "suite: all packages passed: $passed tests, $skipped skipped as listed, nothing left behind, $again run again, ${SECONDS} s"
else
  echo "suite: FAILED: ${bad[*]} ($passed tests passed, $skipped skipped, ${SECONDS} s)"
  exit 1
fi
