package layer

import (
	"context"
	"fmt"
	"os"
	"path"
	"sort"

	"golang.org/x/sys/unix"
)

// entry is one name of a tree that is walked. Its methods are valid during the visit.
type entry struct {
	path   string // relative, "" for the root
	name   string
	st     unix.Stat_t
	target string // of a symlink
	xattrs []xattr
	dir    int // descriptor of the parent
}

func (e *entry) kind() uint32 { return e.st.Mode & unix.S_IFMT }

func (e *entry) letter() byte {
	switch e.kind() {
	case unix.S_IFDIR:
		return 'd'
	case unix.S_IFREG:
		return 'f'
	case unix.S_IFLNK:
		return 'l'
	case unix.S_IFIFO:
		return 'p'
	case unix.S_IFCHR:
		if isWhiteout(&e.st) {
			return 'w'
		}
	}
	return '?'
}

// openFile opens the regular file that was seen, and nothing that took its place.
func (e *entry) openFile() (*os.File, error) {
	fd, err := unix.Openat(e.dir, e.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: e.path, Err: err}
	}
	f := os.NewFile(uintptr(fd), e.path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Ino != e.st.Ino || st.Dev != e.st.Dev {
		f.Close()
		return nil, fmt.Errorf("%s changed while it was read", e.path)
	}
	return f, nil
}

// walk visits root and everything below it, parents first, names in byte order,
// following no link and staying on root's file system. Attributes of
// directories and regular files are read; other kinds have none that we keep.
func walk(ctx context.Context, root *os.File, visit func(*entry) error) error {
	e := &entry{dir: int(root.Fd()), name: "."}
	if err := unix.Fstat(e.dir, &e.st); err != nil {
		return err
	}
	d, err := os.Open(fdPath(e.dir))
	if err != nil {
		return err
	}
	return walkDir(ctx, e, d, e.st.Dev, 0, visit)
}

// walkDir owns d, the open directory that e describes.
func walkDir(ctx context.Context, e *entry, d *os.File, dev uint64, depth int, visit func(*entry) error) error {
	defer d.Close()
	if depth > maxDepth {
		return fmt.Errorf("%.100s…: deeper than %d directories", e.path, maxDepth)
	}
	var err error
	if e.xattrs, err = readXattrs(int(d.Fd())); err != nil {
		return err
	}
	if err := visit(e); err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err != nil {
		return err
	}
	sort.Strings(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		child := &entry{path: path.Join(e.path, name), name: name, dir: int(d.Fd())}
		if err := walkChild(ctx, child, dev, depth, visit); err != nil {
			return err
		}
	}
	return nil
}

func walkChild(ctx context.Context, e *entry, dev uint64, depth int, visit func(*entry) error) error {
	if err := unix.Fstatat(e.dir, e.name, &e.st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "lstat", Path: e.path, Err: err}
	}
	switch e.kind() {
	case unix.S_IFDIR:
		if e.st.Dev != dev {
			return visit(e) // a mount point: an empty directory
		}
		fd, err := unix.Openat(e.dir, e.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: e.path, Err: err}
		}
		return walkDir(ctx, e, os.NewFile(uintptr(fd), e.path), dev, depth+1, visit)
	case unix.S_IFLNK:
		buf := make([]byte, maxPath+1)
		n, err := unix.Readlinkat(e.dir, e.name, buf)
		if err != nil {
			return &os.PathError{Op: "readlink", Path: e.path, Err: err}
		}
		e.target = string(buf[:n])
	case unix.S_IFREG:
		f, err := e.openFile()
		if err != nil {
			return err
		}
		e.xattrs, err = readXattrs(int(f.Fd()))
		f.Close()
		if err != nil {
			return err
		}
	}
	return visit(e)
}
