package rootfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

var devices = []struct {
	name         string
	major, minor uint32
}{
	{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
}

// newDev makes the one /dev that all boxes of the node share. Its superblock
// is read-only: a box owns its mount namespace and could make a merely
// read-only mount of it writable again. mode=0755, because the default of tmpfs
// is sticky, and protected_regular would then refuse `> /dev/null`.
func newDev() (int, error) {
	ctx, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, pathErr("open file system", "tmpfs", err)
	}
	defer unix.Close(ctx)
	for _, p := range []param{str("mode", "0755"), str("size", "256k"), str("source", "dsec-dev")} {
		if err := unix.FsconfigSetString(ctx, p.key, p.value); err != nil {
			return -1, pathErr("configure", "/dev", err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, pathErr("create", "/dev", err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return -1, pathErr("mount", "/dev", err)
	}
	if err := fillDev(fd); err != nil {
		unix.Close(fd)
		return -1, pathErr("fill", "/dev", err)
	}
	if err := errors.Join(unix.FsconfigSetFlag(ctx, "ro"), unix.FsconfigReconfigure(ctx)); err != nil {
		unix.Close(fd)
		return -1, pathErr("make read-only", "/dev", err)
	}
	return fd, nil
}

func fillDev(fd int) error {
	for _, d := range devices {
		if err := unix.Mknodat(fd, d.name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return err
		}
		// The umask of the process must not decide about the modes.
		if err := unix.Fchmodat(fd, d.name, 0o666, 0); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := unix.Symlinkat(target, fd, name); err != nil {
			return err
		}
	}
	for name, mode := range map[string]uint32{"pts": 0o755, "shm": 0o1777, "mqueue": 0o755} {
		if err := errors.Join(unix.Mkdirat(fd, name, mode), unix.Fchmodat(fd, name, mode, 0)); err != nil {
			return err
		}
	}
	return nil
}
