package layer

import (
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

func (w *Writer) symlink(name, target string, m meta) error {
	if target == "" || len(target) > maxPath || strings.ContainsRune(target, 0) {
		return fmt.Errorf("impossible link target")
	}
	fd, base, _, err := w.place(name)
	if err != nil {
		return err
	}
	w.tree.forget()
	if err := unix.Symlinkat(target, fd, base); err != nil {
		return err
	}
	return w.applyAt(fd, base, m)
}

// applyAt sets owner and time of what cannot be opened.
func (w *Writer) applyAt(fd int, base string, m meta) error {
	if w.keepIDs {
		if err := unix.Fchownat(fd, base, m.uid, m.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	return setTimes(fd, base, m.mtime)
}

func (w *Writer) node(name string, kind uint32, m meta) error {
	fd, base, _, err := w.place(name)
	if err != nil {
		return err
	}
	if err := unix.Mknodat(fd, base, kind|0o600, 0); err != nil {
		return err
	}
	if err := w.applyAt(fd, base, m); err != nil {
		return err
	}
	return unix.Fchmodat(fd, base, m.mode&0o777, 0) // just made here, no link: nothing to follow
}

func (w *Writer) link(name, target string) error {
	target, err := cleanName(target)
	if err != nil {
		return fmt.Errorf("link target: %w", err)
	}
	if target == name {
		return nil
	}
	dir, base := path.Split(target)
	from := w.tree.root
	if dir != "" {
		if from, err = w.tree.openDir(dir); err != nil {
			return fmt.Errorf("link target %q: %w", target, err)
		}
		defer from.Close()
	}
	fd, newBase, _, err := w.place(name)
	if err != nil {
		return err
	}
	if err := unix.Linkat(int(from.Fd()), base, fd, newBase, 0); err != nil {
		return fmt.Errorf("link target %q: %w", target, err)
	}
	return nil
}
