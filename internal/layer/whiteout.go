package layer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Marks of OCI layer archives.
const (
	whPrefix = ".wh."
	whOpaque = ".wh..opq" // the whole name is .wh..wh..opq
)

func isWhiteout(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0
}

// whiteout turns an OCI mark in directory dir into overlay's form. Marks speak
// of the layers below only, wherever they stand in the archive.
func (w *Writer) whiteout(dir, rest string) error {
	if dir == "." {
		dir = ""
	}
	switch {
	case rest == whOpaque:
		if dir == "" {
			return fmt.Errorf("an opaque root is not supported: flatten the image to one layer")
		}
		if _, _, err := w.tree.parent(dir + "/x"); err != nil {
			return err
		}
		return w.markOpaque(dir)
	case strings.HasPrefix(rest, whPrefix):
		return nil // aufs's own bookkeeping
	case rest == "", rest == ".", rest == "..":
		return fmt.Errorf("a whiteout without a name")
	}
	name := rest
	if dir != "" {
		name = dir + "/" + rest
	}
	fd, base, err := w.tree.parent(name)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		w.hidden[name] = true
		return w.node(name, unix.S_IFCHR, meta{})
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return w.markOpaque(name)
	}
	return err
}

// reveal turns a whiteout above name into a directory that hides what was there:
// the archive first removes it, then puts something below it.
func (w *Writer) reveal(name string) error {
	if len(w.hidden) == 0 {
		return nil
	}
	for i, c := range name {
		if c == '/' && w.hidden[name[:i]] {
			delete(w.hidden, name[:i])
			return w.dir(name[:i], meta{mode: 0o755})
		}
	}
	return nil
}

func (w *Writer) isOpaque(name string) bool {
	return slices.ContainsFunc(w.dirs[name].xattrs, func(x xattr) bool { return x.name == xattrOpaque })
}

// markOpaque hides what lower layers have in the existing directory name.
func (w *Writer) markOpaque(name string) error {
	m, ok := w.dirs[name]
	if !ok {
		m = meta{mode: 0o755}
	}
	if !w.isOpaque(name) {
		m.xattrs = append(m.xattrs, xattr{xattrOpaque, "y"})
	}
	w.dirs[name] = m
	return nil
}
