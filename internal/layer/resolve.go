package layer

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Resolve gives the name without links that a box would write to when it writes to name
// (relative, clean), the last component's link followed too, and what is there. exists is false
// when nothing is; then the directories from the first missing one on are taken as they are written.
func (v *View) Resolve(name string) (real string, a Attr, exists bool, err error) {
	rest := strings.Split(name, "/")
	links := 0
	if a, err = v.Lstat(""); err != nil {
		return "", a, false, err
	}
	exists = true
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			real = strings.TrimPrefix(path.Dir("/"+real), "/")
			if a, err = v.Lstat(real); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", a, false, err
			}
			exists = err == nil
			continue
		}
		if exists && !a.IsDir() {
			return "", a, false, &fs.PathError{Op: "resolve", Path: name, Err: unix.ENOTDIR}
		}
		next := path.Join(real, part)
		if !exists {
			real = next
			continue
		}
		a, err = v.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			real, exists = next, false
		case err != nil:
			return "", a, false, err
		case a.Mode&unix.S_IFMT == unix.S_IFLNK:
			if links++; links > maxLinks {
				return "", a, false, &fs.PathError{Op: "resolve", Path: name, Err: unix.ELOOP}
			}
			rest = append(strings.Split(a.target, "/"), rest...)
			if path.IsAbs(a.target) {
				real = ""
			}
			if a, err = v.Lstat(real); err != nil {
				return "", a, false, err
			}
		default:
			real = next
		}
	}
	return real, a, exists, nil
}
