#!/usr/bin/env bash
# Runs the functional suite in QEMU, by emulation, on Debian's kernel with cgroup v2 only.
# Usage: test/qemu/run.sh                 every package of test/qemu/packages
#        test/qemu/run.sh PACKAGE...      those only; RUN=regexp picks tests, COUNT=n repeats them, LIMIT=seconds, VERBOSE=1 names the slowest
#        test/qemu/run.sh -- COMMAND...   a command instead, e.g. `test/qemu/run.sh -- dsec doctor`
# Needs root and what scripts/deps.sh installs. Nothing of the host is changed; what is fetched is kept in .cache/qemu.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=test/qemu cache=$PWD/.cache/qemu
mkdir -p "$cache"
say() { echo "qemu: $*" >&2; }

packages=() command=()
if [ "${1:-}" = -- ]; then
  shift; command=("$@")
elif [ $# -gt 0 ]; then
  packages=("$@")
else
  mapfile -t packages < <(sed -n 's/^\([^# ][^ ]*\).*/\1/p' "$here/packages")
fi

# 1. The kernel and its modules, from Debian's package.
if [ ! -s "$cache/vmlinuz" ]; then
  pkg=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-[0-9]/{print $2; exit}')
  say "fetching $pkg"
  tmp=$(mktemp -d)
  (cd "$tmp" && chmod 777 . && apt-get download -qq "$pkg" && dpkg-deb -x ./*.deb x)
  rm -rf "$cache/modules" && mv "$tmp"/x/lib/modules/* "$cache/modules"
  mv "$tmp"/x/boot/vmlinuz-* "$cache/vmlinuz"
  rm -rf "$tmp"
fi

# 2. The base disk: Debian with python3, busybox, and Debian's tar for the tests that import it. It is never written to.
rootfs=$(scripts/debian-rootfs.sh)
work=$(mktemp -d "$cache/run.XXXXXX")
trap 'jobs=$(jobs -p); [ -z "$jobs" ] || kill $jobs 2>/dev/null; rm -rf "$work"' EXIT
if [ ! -s "$cache/base.img" ] || [ "$rootfs" -nt "$cache/base.img" ]; then
  say "making the base disk"
  mkdir -p "$work/base"
  tar -C "$work/base" -xf "$rootfs" --exclude './dev/*'
  mkdir -p "$work/base/suite" "$work/base/srv"
  cp /bin/busybox "$work/base/bin/busybox"
  cp "$rootfs" "$work/base/srv/debian.tar"
  truncate -s 2G "$work/base.img"
  mke2fs -q -F -t ext4 -d "$work/base" "$work/base.img"
  rm -rf "$work/base"
  mv "$work/base.img" "$cache/base.img"
fi

# 3. The disk of this run: the binary, the compiled tests, and room for what they write.
disk=$work/suite
mkdir -p "$disk"/{bin,src,tmp} && chmod 1777 "$disk/tmp"
cp bin/dsec "$disk/dsec"
cp "$here/suite.sh" "$here/init.sh" "$here/skips" "$disk/"
: > "$disk/order"
if [ ${#packages[@]} -gt 0 ]; then
  say "compiling the tests of ${packages[*]}"
  CGO_ENABLED=0 go test -c -ldflags '-s -w' -o "$disk/bin/" "${packages[@]/#/./}" >&2
fi
for p in ${packages[@]+"${packages[@]}"}; do
  mv "$disk/bin/${p##*/}.test" "$disk/bin/${p//\//-}.test" || { say "$p has no tests"; exit 1; }
  mkdir -p "$disk/src/$p"
  if [ -d "$p/testdata" ]; then cp -r "$p/testdata" "$disk/src/$p/"; fi
  read -r _ seconds tests < <(grep "^$p " "$here/packages" || echo "$p 300")
  echo "$p ${LIMIT:-$seconds} ${RUN:-$tests}" >> "$disk/order"
done
if [ ${#command[@]} -gt 0 ]; then printf '%q ' "${command[@]}" > "$disk/command"; else echo "/suite/suite.sh" > "$disk/command"; fi
printf '%s' "${VERBOSE:-}" > "$disk/verbose"
printf '%s' "${COUNT:-1}" > "$disk/count"
truncate -s 4G "$work/suite.img"
mke2fs -q -F -t ext4 -d "$disk" "$work/suite.img"
rm -rf "$disk"

# 4. A small initramfs that loads the modules and switches to the disk.
init=$work/init
mkdir -p "$init"/{bin,mnt,proc,sys,dev,mod}
cp /bin/busybox "$init/bin/busybox"
mods="virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk crc16 mbcache jbd2 crc32c_generic libcrc32c ext4 overlay erofs loop"
for m in $mods; do
  f=$(find "$cache/modules" -name "$m.ko" -o -name "$m.ko.xz" | head -1)
  case $f in "") ;; *.xz) xz -dc "$f" > "$init/mod/$m.ko" ;; *) cp "$f" "$init/mod/$m.ko" ;; esac
done
cat > "$init/init" <<INIT
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for m in $mods; do [ ! -f /mod/\$m.ko ] || /bin/busybox insmod /mod/\$m.ko || echo "module \$m: failed"; done
i=0; while [ ! -b /dev/vdb ] && [ \$i -lt 100 ]; do /bin/busybox sleep 0.1; i=\$((i+1)); done
/bin/busybox mount -t ext4 /dev/vda /mnt && /bin/busybox mount -t ext4 /dev/vdb /mnt/suite || /bin/busybox poweroff -f
/bin/busybox mount --move /dev /mnt/dev
/bin/busybox umount /proc
exec /bin/busybox switch_root /mnt /bin/bash /suite/init.sh
INIT
chmod +x "$init/init"
(cd "$init" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initrd.gz"
rm -rf "$init"

# 5. The console is shown; the verdict comes on a line of its own, where nothing else writes.
say "booting"
timeout "${QEMU_TIMEOUT:-1500}" qemu-system-x86_64 -machine q35,accel=tcg -cpu max -smp 2 -m 4096 -no-reboot -nic none \
  -display none -monitor none -serial stdio -serial "file:$work/verdict" \
  -kernel "$cache/vmlinuz" -initrd "$work/initrd.gz" \
  -drive "file=$cache/base.img,if=virtio,format=raw,cache=unsafe,snapshot=on" \
  -drive "file=$work/suite.img,if=virtio,format=raw,cache=unsafe" \
  -append "console=ttyS0 loglevel=2 panic=-1 cgroup_no_v1=all mitigations=off" </dev/null > >(sed -u 's/\r$//') 2>&1 &
wait $! || say "the machine ended with $?"
verdict=$(tr -d '\r\n' < "$work/verdict")
[ "$verdict" = "exit 0" ] || { say "failed: ${verdict:-no verdict: the machine died or ran out of time}"; exit 1; }
