package files

import "golang.org/x/sys/unix"

func (o *op) mkdir() error {
	mode := o.req.Mode & 0o7777
	if mode == 0 {
		mode = 0o755
	}
	err := o.as(func() error {
		if o.req.Parents {
			return o.makeDirs(o.path, mode)
		}
		return o.makeDir(o.path, mode)
	})
	if err != nil {
		return at(o.req.Path, err)
	}
	return o.done(0)
}

// link makes o.path a link to the request's To: symbolic with exactly that
// text, or hard (to a symbolic link itself, not through it).
func (o *op) link() error {
	target := o.req.To
	if !o.req.Symbolic {
		var err error
		if target, err = o.resolve(target); err != nil {
			return err
		}
	}
	err := o.as(func() error {
		if o.req.Symbolic {
			return unix.Symlink(target, o.path)
		}
		return unix.Linkat(unix.AT_FDCWD, target, unix.AT_FDCWD, o.path, 0)
	})
	if err != nil {
		return at(o.req.Path, err)
	}
	return o.done(0)
}

// chmod changes mode and owner of what the path leads to, and with recursive of
// everything below, where symbolic links are not followed.
func (o *op) chmod() error {
	uid, gid := -1, -1
	if o.req.SetOwner {
		var err error
		if uid, gid, err = o.w.users.owner(o.req.Owner); err != nil {
			return err
		}
	}
	change := func(dirfd int, name string, flags int) error {
		return o.as(func() error {
			// The descriptor holds on to the file: it cannot be swapped for a link between the steps.
			fd, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_CLOEXEC|flags, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			if o.req.SetOwner {
				if err := unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
					return err
				}
			}
			var st unix.Stat_t
			if err := unix.Fstat(fd, &st); err != nil || !o.req.SetMode || st.Mode&unix.S_IFMT == unix.S_IFLNK {
				return err
			}
			return unix.Chmod(procFD(fd), o.req.Mode&0o7777)
		})
	}
	if err := change(unix.AT_FDCWD, o.path, 0); err != nil {
		return at(o.req.Path, err)
	}
	if o.req.Recursive {
		if err := o.chmodBelow(change); err != nil {
			return err
		}
	}
	return o.done(0)
}

func (o *op) chmodBelow(change func(dirfd int, name string, flags int) error) error {
	w, err := o.walk(o.path)
	if err == unix.ENOTDIR {
		return nil
	}
	if err != nil {
		return at(o.req.Path, err)
	}
	defer w.close()
	for {
		e, err := w.next()
		if e == nil || err != nil {
			return err
		}
		path := join(o.req.Path, e.rel)
		// Into a directory first: its new mode may close it to the user.
		if isDir(&e.st) {
			if err := w.enter(); err != nil {
				return at(path, err)
			}
		}
		if err := change(e.dirfd, e.name, unix.O_NOFOLLOW); err != nil && err != unix.ENOENT {
			return at(path, err)
		}
	}
}
