package files

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// maxDepth bounds how deep trees are walked: each level keeps a descriptor and a batch of entries.
const maxDepth = 256

// entry is something in a directory.
type entry struct {
	dirfd  int    // its directory, open until the walk goes on
	name   string // in the directory
	rel    string // path from the walk's start
	st     unix.Stat_t
	target string // of a symbolic link
	depth  int    // 1: in the walk's start
}

// walk goes through a tree in depth-first order, a directory before what is in
// it. It reads directories in batches, never whole.
type walk struct {
	o      *op
	levels []*level
	buf    []byte
	last   *entry
}

type level struct {
	fd      int
	rel     string
	entries []entry
}

// walk starts below a directory (which may be a symbolic link to one).
func (o *op) walk(path string) (*walk, error) {
	w := &walk{o: o, buf: make([]byte, 16<<10)}
	err := o.as(func() error { return w.push(unix.AT_FDCWD, path, "", 0) })
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (w *walk) push(dirfd int, name, rel string, flags int) error {
	if len(w.levels) >= maxDepth {
		return invalid("path "+rel, "the tree is more than "+itoa(maxDepth)+" directories deep", "work on parts of it")
	}
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		return err
	}
	w.levels = append(w.levels, &level{fd: fd, rel: rel})
	return nil
}

// next gives the next entry, nil at the end. It is valid until next is called again.
func (w *walk) next() (*entry, error) {
	for len(w.levels) > 0 {
		top := w.levels[len(w.levels)-1]
		if len(top.entries) > 0 {
			e := &top.entries[0]
			top.entries = top.entries[1:]
			w.last = e
			return e, nil
		}
		if err := w.o.as(func() error { return w.fill(top) }); err != nil {
			return nil, at(top.rel, err)
		}
		if len(top.entries) == 0 {
			unix.Close(top.fd)
			w.levels = w.levels[:len(w.levels)-1]
		}
	}
	return nil, nil
}

// enter makes the walk go into the directory that next gave.
func (w *walk) enter() error {
	e := w.last
	return w.o.as(func() error { return w.push(e.dirfd, e.name, e.rel, unix.O_NOFOLLOW) })
}

// fill reads the next batch of a directory.
func (w *walk) fill(l *level) error {
	buf := w.buf
	if len(w.levels) > 16 {
		buf = buf[:2<<10] // what deep trees keep is bounded too
	}
	for len(l.entries) == 0 {
		n, err := unix.Getdents(l.fd, buf)
		if err != nil || n <= 0 {
			return err
		}
		for _, name := range names(buf[:n]) {
			e := entry{dirfd: l.fd, name: name, rel: name, depth: len(w.levels)}
			if l.rel != "" {
				e.rel = l.rel + "/" + name
			}
			if err := unix.Fstatat(l.fd, name, &e.st, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
				continue // removed meanwhile
			} else if err != nil {
				return err
			}
			e.target = linkTarget(l.fd, name, &e.st)
			l.entries = append(l.entries, e)
		}
	}
	return nil
}

func (w *walk) close() {
	for _, l := range w.levels {
		unix.Close(l.fd)
	}
	w.levels = nil
}

// names gives the names of a batch of struct linux_dirent64, but for "." and "..".
func names(buf []byte) []string {
	const lengthAt, nameAt = 16, 19
	var list []string
	for len(buf) > nameAt {
		n := int(binary.NativeEndian.Uint16(buf[lengthAt:]))
		if n < nameAt || n > len(buf) {
			break
		}
		name, _, _ := bytes.Cut(buf[nameAt:n], []byte{0})
		buf = buf[n:]
		if s := string(name); s != "." && s != ".." {
			list = append(list, s)
		}
	}
	return list
}
