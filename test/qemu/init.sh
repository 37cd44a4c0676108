#!/bin/bash
# PID 1 of the virtual machine: prepares the file systems, runs one command, tells its exit code, powers off.
# bash waits for every child that the kernel gives it, so orphans are reaped while the command runs.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb TMPDIR=/tmp LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount --bind /suite/tmp /tmp # the disk: a tmpfs cannot be id-mapped by this kernel
ln -s /proc/self/fd /dev/fd; ln -s /proc/self/fd/0 /dev/stdin; ln -s /proc/self/fd/1 /dev/stdout; ln -s /proc/self/fd/2 /dev/stderr
ip link set lo up
echo '127.0.0.1 localhost dsec-suite' > /etc/hosts
hostname dsec-suite
install -m 755 /suite/dsec /usr/bin/dsec
echo "suite: Linux $(uname -r), cgroup2: $(cat /sys/fs/cgroup/cgroup.controllers)"
setsid bash -c "$(cat /suite/command)" </dev/null
code=$?
echo "exit $code" > /dev/ttyS1
sync
echo o > /proc/sysrq-trigger
sleep 60
