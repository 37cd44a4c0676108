package files

import (
	"strings"

	"golang.org/x/sys/unix"
)

// place is where a path leads as far as root's power may be led.
type place struct {
	dirfd   int    // a directory; to be closed
	rest    string // what is left of the path, from there; "" for the directory itself
	missing bool   // the first name of rest is not there
	theirs  bool   // the first name of rest is a link that root does not stand for
}

// maxHops bounds the symbolic links on the way of one path, as the kernel does.
const maxHops = 40

// lead goes along a path name by name, and follows the symbolic links that root stands for: root's
// own, in a directory where the user cannot put them. At any other link it stops: whoever is led on by
// that must be so with the user's power, or a link to a file of root's would be enough to become root.
// Unless it stops, rest is the last name alone, which is no link.
func (o *op) lead(path string) (place, error) {
	p := place{rest: path}
	var err error
	if p.dirfd, err = openDir("/"); err != nil {
		return p, err
	}
	for hops := 0; ; {
		name, after := first(p.rest)
		if p.rest = trail(name, after); name == "" {
			return p, nil
		}
		fd, err := unix.Openat(p.dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			p.missing = true
			return p, nil
		}
		var st unix.Stat_t
		if err == nil {
			err = unix.Fstat(fd, &st)
		}
		link := err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
		switch {
		case err != nil:
		case link && !o.standsFor(p.dirfd, &st):
			p.theirs = true
			unix.Close(fd)
			return p, nil
		case link:
			var target string
			if target, err = readLink(fd); err != nil {
				break
			}
			if hops++; hops > maxHops {
				err = unix.ELOOP
				break
			}
			p.rest = trail(target, after)
			unix.Close(fd)
			if target[0] != '/' {
				continue
			}
			if fd, err = openDir("/"); err != nil {
				break
			}
			unix.Close(p.dirfd)
			p.dirfd = fd
			continue
		case after == "":
			unix.Close(fd)
			return p, nil
		case !isDir(&st):
			err = unix.ENOTDIR
		}
		if err != nil {
			if fd >= 0 {
				unix.Close(fd)
			}
			unix.Close(p.dirfd)
			return place{dirfd: -1}, err
		}
		unix.Close(p.dirfd)
		p.dirfd, p.rest = fd, after
	}
}

// standsFor tells whether root made the link, and its place is root's too.
func (o *op) standsFor(dirfd int, link *unix.Stat_t) bool {
	var dir unix.Stat_t
	if link.Uid != 0 || unix.Fstat(dirfd, &dir) != nil || dir.Uid != 0 || dir.Mode&unix.S_IWOTH != 0 {
		return false
	}
	if dir.Mode&unix.S_IWGRP == 0 {
		return true
	}
	for _, g := range append([]uint32{o.owner.gid}, o.owner.groups...) {
		if g == dir.Gid {
			return false
		}
	}
	return true
}

// isDir wants the place, which is there, to be a directory.
func (p *place) isDir() error {
	var st unix.Stat_t
	if p.rest == "" {
		return nil
	}
	if err := unix.Fstatat(p.dirfd, p.rest, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if !isDir(&st) {
		return unix.ENOTDIR
	}
	return nil
}

// readLink gives the text of a link that is open.
func readLink(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err == nil && n == 0 {
		err = unix.ENOENT
	}
	return string(buf[:max(n, 0)]), err
}

// first cuts the first name off a path; names that mean the directory itself are passed over.
func first(path string) (name, after string) {
	for name == "" || name == "." {
		path = strings.TrimLeft(path, "/")
		if path == "" {
			return "", ""
		}
		name, path, _ = strings.Cut(path, "/")
	}
	if next, more := "", path; more != "" {
		if next, _ = first(more); next == "" {
			return name, ""
		}
	}
	return name, path
}

// trail puts what is left of a path behind its begin.
func trail(path, after string) string {
	if after == "" {
		return path
	}
	return path + "/" + after
}
