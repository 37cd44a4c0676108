package rootfs

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// recursive is not offered on purpose: a clone shows one file system, never
// what is mounted below it.
const cloneFlags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC

// clone gives a detached copy of the mount at dir/path with attrs set. With a
// userns descriptor (not -1) it is id-mapped.
func clone(dir int, path string, attrs uint64, userns int) (int, error) {
	flags := uint(cloneFlags)
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	fd, err := unix.OpenTree(dir, path, flags)
	if err != nil {
		return -1, pathErr("clone mount", path, err)
	}
	if err := setAttr(fd, attrs, userns); err != nil {
		unix.Close(fd)
		return -1, pathErr("set mount attributes", path, err)
	}
	return fd, nil
}

func setAttr(fd int, attrs uint64, userns int) error {
	a := unix.MountAttr{Attr_set: attrs, Propagation: unix.MS_PRIVATE}
	if userns >= 0 {
		a.Attr_set |= unix.MOUNT_ATTR_IDMAP
		a.Userns_fd = uint64(userns)
	}
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &a)
}

// param of a new file system; empty value: a flag; fd >= 0 is given by FD.
type param struct {
	key, value string
	fd         int
}

func str(key, value string) param { return param{key, value, -1} }
func flag(key string) param       { return param{key, "", -1} }

// newFS makes a file system and gives it as a detached mount.
func newFS(name string, attrs int, params ...param) (int, error) {
	ctx, err := unix.Fsopen(name, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, pathErr("open file system", name, err)
	}
	defer unix.Close(ctx)
	for _, p := range params {
		switch {
		case p.fd >= 0:
			err = unix.FsconfigSetFd(ctx, p.key, p.fd)
		case p.value == "":
			err = unix.FsconfigSetFlag(ctx, p.key)
		default:
			err = unix.FsconfigSetString(ctx, p.key, p.value)
		}
		if err != nil {
			return -1, fmt.Errorf("%s: option %s: %w%s", name, p.key, err, reason(ctx))
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return -1, fmt.Errorf("%s: create: %w%s", name, err, reason(ctx))
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attrs)
	return fd, pathErr("mount", name, err)
}

// reason reads what the kernel says about a refusal; a file system context is
// a little log.
func reason(ctx int) string {
	buf := make([]byte, 1024)
	n, err := unix.Read(ctx, buf)
	if err != nil || n <= 0 {
		return ""
	}
	return " (" + string(buf[:n]) + ")"
}

func pathErr(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}
