package layer

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// tree resolves names below one directory as a chroot would: symlinks, absolute
// ones too, and ".." stay inside, whatever was planted there. The last component
// of a name is never followed.
type tree struct {
	root *os.File
	// The parent of the last entry: tar streams come directory by directory.
	// forget must be called whenever a name that was a directory may have
	// become something else.
	dirName string
	dir     *os.File
	// made is told of every directory that parent made on the way.
	made func(name string)
}

func openTree(dir string) (*tree, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &tree{root: f}, nil
}

func (t *tree) Close() error {
	if t.dir != nil {
		t.dir.Close()
	}
	return t.root.Close()
}

// forget makes the next parent resolve anew. The descriptor in use stays open till then.
func (t *tree) forget() { t.dirName = "" }

// parent opens the directory that holds name ("a/b/c"), making missing ones, and
// gives the last component. The descriptor is valid until the next call.
func (t *tree) parent(name string) (fd int, base string, err error) {
	dirName, base := path.Split(name)
	dirName = strings.TrimSuffix(dirName, "/")
	if dirName == "" {
		return int(t.root.Fd()), base, nil
	}
	if t.dir != nil && t.dirName == dirName {
		return int(t.dir.Fd()), base, nil
	}
	f, err := t.openDir(dirName)
	if errors.Is(err, unix.ENOENT) {
		if err = t.mkdirs(dirName); err == nil {
			f, err = t.openDir(dirName)
		}
	}
	if err != nil {
		return -1, "", err
	}
	if t.dir != nil {
		t.dir.Close()
	}
	t.dir, t.dirName = f, dirName
	return int(f.Fd()), base, nil
}

// openDir opens an existing directory, following symlinks inside the tree.
func (t *tree) openDir(name string) (*os.File, error) {
	return openIn(t.root, name, unix.O_DIRECTORY|unix.O_RDONLY)
}

func openIn(root *os.File, name string, flags int) (*os.File, error) {
	how := &unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(int(root.Fd()), name, how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), name), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			// EAGAIN: a rename elsewhere raced with the resolution of "..".
		default:
			return nil, err
		}
	}
}

func (t *tree) mkdirs(name string) error {
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '/' {
			continue
		}
		f, err := t.openDir(name[:i])
		if err == nil {
			f.Close()
			continue
		}
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		up, base := path.Split(name[:i])
		d := t.root
		if up != "" {
			if d, err = t.openDir(up); err != nil {
				return err
			}
		}
		err = unix.Mkdirat(int(d.Fd()), base, 0o700)
		if d != t.root {
			d.Close()
		}
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%q is a link that leads nowhere", name[:i])
		}
		if err != nil {
			return err
		}
		t.made(name[:i])
	}
	return nil
}

// remove deletes what the last component names, with all that is below it. A
// name that does not exist is no error.
func (t *tree) remove(fd int, base string) error {
	err := unix.Unlinkat(fd, base, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	r, err := os.OpenRoot(fdPath(fd))
	if err != nil {
		return err
	}
	defer r.Close()
	t.forget() // the cached directory may be below
	return r.RemoveAll(base)
}

func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func setTimes(fd int, base string, sec int64) error {
	ts := unix.Timespec{Sec: sec}
	return unix.UtimesNanoAt(fd, base, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}
