package layer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// View reads files of a stack of layers as a box would see them, without
// mounting the stack. Close it.
type View struct{ roots []*os.File }

// Attr of a file in a View.
type Attr struct {
	Mode     uint32 // type and permission bits, as in stat(2)
	UID, GID int
	MTime    int64
	target   string
	layer    *os.File
	path     string // within that layer
}

// IsDir tells whether it is a directory.
func (a Attr) IsDir() bool { return a.Mode&unix.S_IFMT == unix.S_IFDIR }

// OpenView opens a stack, top first.
func OpenView(layers []Info) (*View, error) {
	v := &View{}
	for _, in := range layers {
		f, err := in.Open()
		if err != nil {
			v.Close()
			return nil, fmt.Errorf("layer %s: %w", in.Digest, err)
		}
		v.roots = append(v.roots, f)
	}
	return v, nil
}

// Close releases the layers.
func (v *View) Close() error {
	for _, f := range v.roots {
		f.Close()
	}
	return nil
}

const maxLinks = 40

// Stat resolves name as a box would, links included.
func (v *View) Stat(name string) (Attr, error) {
	rest, at, links := strings.Split(name, "/"), "", 0
	a, err := v.Lstat("")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = strings.TrimPrefix(path.Dir("/"+at), "/")
			a, err = v.Lstat(at)
		default:
			next := path.Join(at, part)
			a, err = v.Lstat(next)
			if err == nil && a.Mode&unix.S_IFMT == unix.S_IFLNK {
				if links++; links > maxLinks {
					return Attr{}, &fs.PathError{Op: "stat", Path: name, Err: unix.ELOOP}
				}
				if path.IsAbs(a.target) {
					at = ""
				}
				rest = append(strings.Split(a.target, "/"), rest...)
				a, _ = v.Lstat(at)
				continue
			}
			at = next
		}
		if err != nil {
			return Attr{}, err
		}
	}
	return a, err
}

// Lstat looks name (relative, clean) up without following a link anywhere.
func (v *View) Lstat(name string) (Attr, error) {
	notFound := &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	for _, root := range v.roots {
		a, found, hides, below, err := lookup(root, name)
		if err != nil {
			return Attr{}, err
		}
		if found {
			return a, nil
		}
		if hides {
			return Attr{}, notFound
		}
		name = below
	}
	return Attr{}, notFound
}

// lookup finds name in one layer; hides tells that lower layers do not show through. They have
// it as below: a directory that a box renamed says where it was.
func lookup(root *os.File, name string) (a Attr, found, hides bool, below string, err error) {
	dir, err := openIn(root, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return a, false, false, "", err
	}
	defer func() { dir.Close() }()
	var st unix.Stat_t
	if name == "" {
		err := unix.Fstat(int(dir.Fd()), &st)
		return attrOf(&st, root, name), err == nil, false, "", err
	}
	parts := strings.Split(name, "/")
	at := "" // the directory's name in the layers below
	for i, part := range parts {
		if v, err := getXattr(int(dir.Fd()), xattrOpaque); err == nil && v == "y" {
			hides = true
		}
		below = path.Join(append([]string{at}, parts[i:]...)...)
		err := unix.Fstatat(int(dir.Fd()), part, &st, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case errors.Is(err, unix.ENOENT):
			return a, false, hides, below, nil
		case err != nil:
			return a, false, false, "", err
		case isWhiteout(&st):
			return a, false, true, "", nil
		case i == len(parts)-1:
			a = attrOf(&st, root, name)
			if st.Mode&unix.S_IFMT == unix.S_IFLNK {
				buf := make([]byte, maxPath+1)
				n, err := unix.Readlinkat(int(dir.Fd()), part, buf)
				if err != nil {
					return a, false, false, "", err
				}
				a.target = string(buf[:n])
			}
			return a, true, false, "", nil
		case st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return a, false, true, "", nil
		}
		fd, err := unix.Openat(int(dir.Fd()), part, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return a, false, false, "", err
		}
		dir.Close()
		dir = os.NewFile(uintptr(fd), part)
		at = redirected(fd, at, part)
	}
	return a, false, hides, below, nil
}

// redirected gives the name in the layers below of the open directory part, whose parent is at there.
func redirected(fd int, at, part string) string {
	switch to, err := getXattr(fd, xattrRedirect); {
	case err != nil || to == "":
		return path.Join(at, part)
	case path.IsAbs(to):
		return strings.TrimPrefix(path.Clean(to), "/")
	default:
		return path.Join(at, to)
	}
}

func attrOf(st *unix.Stat_t, root *os.File, name string) Attr {
	return Attr{Mode: st.Mode, UID: int(st.Uid), GID: int(st.Gid), MTime: mtimeOf(st), layer: root, path: name}
}

// ReadFile gives at most limit bytes of a regular file, links followed.
func (v *View) ReadFile(name string, limit int64) ([]byte, Attr, error) {
	a, err := v.Stat(name)
	if err != nil {
		return nil, a, err
	}
	if a.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, a, fmt.Errorf("%s is not a regular file", name)
	}
	f, err := openIn(a.layer, a.path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK)
	if err != nil {
		return nil, a, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", name, limit)
	}
	return b, a, err
}
