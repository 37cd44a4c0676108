#!/usr/bin/env bash
# Runs the functional suite in QEMU, by emulation, on Debian's kernel with cgroup v2 only.
# Usage: test/qemu/run.sh [command]   (default: the suite; e.g. `test/qemu/run.sh /bin/bash -c 'dsec doctor'`)
# Needs root, qemu-system-x86_64, mmdebstrap, cpio, e2fsprogs, busybox-static. Nothing of the host is changed; files are kept in .cache/qemu.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache/qemu
mkdir -p "$cache"

say() { echo "qemu: $*" >&2; }

# 1. The kernel and its modules, from Debian's package.
if [ ! -s "$cache/vmlinuz" ]; then
  pkg=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-6/{print $2; exit}')
  say "fetching $pkg"
  tmp=$(mktemp -d)
  (cd "$tmp" && chmod 777 . && apt-get download -qq "$pkg" && dpkg-deb -x ./*.deb x)
  rm -rf "$cache/modules" && mv "$tmp"/x/lib/modules/* "$cache/modules"
  mv "$tmp"/x/boot/vmlinuz-* "$cache/vmlinuz"
  rm -rf "$tmp"
fi

# 2. The root file system: Debian with python3.
rootfs=$(scripts/debian-rootfs.sh)

# 3. What is under test: the binary and the compiled test packages.
work=$(mktemp -d "$cache/run.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/root/suite/bin" "$work/root/suite/template"
tar -C "$work/root" -xf "$rootfs" --exclude './dev/*'
cp bin/dsec "$work/root/usr/bin/dsec"
cp "$rootfs" "$work/root/suite/template/debian.tar"
ver=$(ls "$cache/modules/kernel" >/dev/null && basename "$(readlink -f "$cache/modules")")
for p in internal/runtime/native internal/guest/spawn internal/guest/setup internal/node test/e2e; do
  compgen -G "$p/*_test.go" >/dev/null || continue
  out="$work/root/suite/bin/$(echo "$p" | tr / -).test"
  CGO_ENABLED=0 go test -c -o "$out" "./$p" >&2
  if [ -f "$out" ]; then
    mkdir -p "$work/root/suite/src/$p"
    [ -d "$p/testdata" ] && cp -r "$p/testdata" "$work/root/suite/src/$p/"
  fi
done
cp test/qemu/suite.sh "$work/root/suite/run.sh"
printf '%q ' "${@:-/suite/run.sh}" > "$work/root/suite/command"
truncate -s 3G "$work/disk.img"
mke2fs -q -F -t ext4 -d "$work/root" "$work/disk.img"
rm -rf "$work/root"

# 4. A small initramfs that loads the modules and switches to the disk.
init=$work/init
mkdir -p "$init"/{bin,mnt,proc,sys,dev,mod}
cp /bin/busybox "$init/bin/busybox"
mods="virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk crc16 mbcache jbd2 crc32c_generic libcrc32c ext4 overlay erofs loop"
for m in $mods; do
  f=$(find "$cache/modules" -name "$m.ko" -o -name "$m.ko.xz" | head -1)
  [ -n "$f" ] || continue
  case $f in *.xz) xz -dc "$f" > "$init/mod/$m.ko" ;; *) cp "$f" "$init/mod/$m.ko" ;; esac
done
cat > "$init/init" <<INIT
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for m in $mods; do [ -f /mod/\$m.ko ] && /bin/busybox insmod /mod/\$m.ko || echo "no module \$m"; done
i=0; while [ ! -b /dev/vda ] && [ \$i -lt 100 ]; do /bin/busybox sleep 0.1; i=\$((i+1)); done
/bin/busybox mount -t ext4 /dev/vda /mnt || { echo "no root disk"; /bin/busybox cat /proc/partitions /proc/modules; /bin/busybox ls /dev /mod; /bin/busybox poweroff -f; }
/bin/busybox mount --move /dev /mnt/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /mnt /bin/bash /suite/init
INIT
chmod +x "$init/init"
(cd "$init" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initrd.gz"
rm -rf "$init"

# The guest's /suite/init is written into the image by debugfs, so that the image is made once.
cat > "$work/suite-init" <<'INIT'
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /tmp; mount -t tmpfs -o mode=755 tmpfs /run; mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm
ip link set lo up
mkdir -p /root/.cache
echo "suite: $(uname -r), $(cat /sys/fs/cgroup/cgroup.controllers)"
eval "$(cat /suite/command)"
echo "suite: exit $?"
echo o > /proc/sysrq-trigger; sleep 5
INIT
debugfs -w -R "write $work/suite-init /suite/init" "$work/disk.img" >/dev/null 2>&1

log=$work/console
say "booting"
timeout "${QEMU_TIMEOUT:-1500}" qemu-system-x86_64 -machine q35,accel=tcg -cpu max -smp 2 -m 3072 -nographic -no-reboot -nic none \
  -kernel "$cache/vmlinuz" -initrd "$work/initrd.gz" -drive "file=$work/disk.img,if=virtio,format=raw,cache=unsafe" \
  -append "console=ttyS0 quiet panic=-1 cgroup_no_v1=all mitigations=off" </dev/null 2>&1 | tee "$log" | sed 's/\r$//'
grep -q '^suite: exit 0' "$log" || { say "the suite failed"; exit 1; }
