#!/bin/bash
# Runs inside the virtual machine: every compiled test package, as root, on cgroup v2 only.
set -u
failed=0
export DSEC_TEST_EXPECT_CGROUP=v2 DSEC_TEST_BINARY=/usr/bin/dsec DSEC_TEST_ROOTFS=/suite/template/debian.tar
for t in /suite/bin/*.test; do
  name=$(basename "$t" .test)
  dir=/suite/src/$(echo "$name" | sed 's#-#/#g'); mkdir -p "$dir"
  echo "=== package $name"
  (cd "$dir" && "$t" -test.timeout 15m -test.v 2>&1 | grep -E '^(---|===|\s+---|ok|PASS|FAIL|panic|\s+\w+_test\.go)' | grep -v '^=== RUN' | grep -v '^=== PAUSE' | grep -v '^=== CONT'; exit "${PIPESTATUS[0]}") || { failed=1; echo "FAIL $name"; }
done
exit $failed
