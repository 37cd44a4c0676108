package files

import (
	"strings"

	"golang.org/x/sys/unix"
)

// resolve makes a request's path absolute; relative ones begin at the user's home.
func (o *op) resolve(path string) (string, error) {
	switch {
	case path == "":
		return "", invalid("path", "the path is empty", "name a path in the box")
	case strings.IndexByte(path, 0) >= 0:
		return "", invalid("path", "the path has a NUL byte", "name a path in the box")
	case path[0] == '/':
		return path, nil
	case path == "~" || strings.HasPrefix(path, "~/"):
		path = path[1:]
	}
	return join(o.home, path), nil
}

// split cuts a path into its directory and its last element, which must be a name.
func split(path string) (dir, name string, err error) {
	trimmed := strings.TrimRight(path, "/")
	i := strings.LastIndexByte(trimmed, '/')
	dir, name = trimmed[:i+1], trimmed[i+1:]
	if name == "" || name == "." || name == ".." {
		return "", "", invalid("path "+path, "it does not end in a name", "name a file or a directory in its parent")
	}
	return dir, name, nil
}

func join(dir, name string) string {
	return strings.TrimRight(dir, "/") + "/" + strings.TrimLeft(name, "/")
}

// openDir opens a directory to name things in it, not to read it.
func openDir(path string) (int, error) {
	return unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// parent opens the directory of a path.
func parent(path string) (dirfd int, name string, err error) {
	dir, name, err := split(path)
	if err != nil {
		return -1, "", err
	}
	dirfd, err = openDir(dir)
	return dirfd, name, err
}

// makeDirs makes a directory and its missing parents, as mkdir -p does, and
// tells whether the last one is new.
func makeDirs(path string, mode uint32) (made bool, err error) {
	err = unix.Mkdir(path, mode)
	if err == unix.ENOENT {
		dir, _, serr := split(path)
		if serr != nil {
			return false, serr
		}
		if _, err = makeDirs(dir, 0o755); err == nil {
			err = unix.Mkdir(path, mode)
		}
	}
	if err == unix.EEXIST {
		var st unix.Stat_t
		if err = unix.Stat(path, &st); err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			err = unix.ENOTDIR
		}
		return false, err
	}
	// A read-only root answers EROFS also for directories that are there.
	if err == unix.EROFS {
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			return false, nil
		}
	}
	return err == nil, err
}

// procFD is a path to an open file. Our own descriptors are open to every thread of this process.
func procFD(fd int) string { return "/proc/self/fd/" + itoa(fd) }
