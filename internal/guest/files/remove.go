package files

import "golang.org/x/sys/unix"

// maxHeld bounds the directories that a removal keeps open; what is deeper is moved up first.
const maxHeld = 128

func (o *op) remove() error {
	if err := o.removePath(o.path, o.req.Recursive); err != nil {
		return at(o.req.Path, err)
	}
	return o.done(0)
}

func (o *op) removePath(path string, recursive bool) error {
	dirfd, name := -1, ""
	err := o.as(func() (err error) {
		if dirfd, name, err = parent(path); err == nil {
			err = removeOne(dirfd, name)
		}
		return err
	})
	if dirfd >= 0 {
		defer unix.Close(dirfd)
	}
	if err == unix.ENOTEMPTY && recursive {
		err = o.removeTree(dirfd, name)
	}
	return err
}

// removeOne removes a file or an empty directory.
func removeOne(dirfd int, name string) error {
	err := unix.Unlinkat(dirfd, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	dirErr := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR)
	switch dirErr {
	case unix.ENOTDIR:
		return err
	case unix.EEXIST:
		return unix.ENOTEMPTY
	}
	return dirErr
}

// removeTree removes a directory and all below it, however deep, without
// following links and with few descriptors. A client that goes away ends it.
func (o *op) removeTree(dirfd int, name string) error {
	r := remover{buf: make([]byte, 16<<10)}
	defer r.close()
	err := o.as(func() error { return r.enter(dirfd, name) })
	for err == nil && len(r.held) > 0 {
		if o.gone() {
			return unix.ECANCELED
		}
		err = o.as(r.step)
	}
	if err == nil {
		err = o.as(func() error { return removeOne(dirfd, name) })
	}
	return err
}

type remover struct {
	held  []held
	moved int
	buf   []byte
}

// held is a directory on the way to the innermost one.
type held struct {
	fd      int
	name    string
	pending []string // read, not yet removed
	removed bool     // something in this pass: another one must find nothing
}

func (r *remover) enter(dirfd int, name string) error {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		r.held = append(r.held, held{fd: fd, name: name})
	}
	return err
}

// step removes a batch of the innermost directory's entries, goes into one that is a tree, or
// leaves the directory.
func (r *remover) step() error {
	top := &r.held[len(r.held)-1]
	for len(top.pending) > 0 {
		name := top.pending[0]
		top.pending = top.pending[1:]
		top.removed = true
		switch err := removeOne(top.fd, name); err {
		case nil, unix.ENOENT:
		case unix.ENOTEMPTY:
			return r.deeper(top.fd, name)
		default:
			return err
		}
	}
	n, err := unix.Getdents(top.fd, r.buf)
	if err != nil {
		return err
	}
	if n > 0 {
		top.pending = names(r.buf[:n])
		return nil
	}
	if top.removed {
		// Reading while removing may have passed over entries.
		top.removed = false
		_, err := unix.Seek(top.fd, 0, unix.SEEK_SET)
		return err
	}
	name := top.name
	unix.Close(top.fd)
	r.held = r.held[:len(r.held)-1]
	if len(r.held) == 0 {
		return nil
	}
	err = removeOne(r.held[len(r.held)-1].fd, name)
	if err == unix.ENOTEMPTY || err == unix.ENOENT {
		return nil // somebody else is at work in it; another pass finds it
	}
	return err
}

func (r *remover) deeper(dirfd int, name string) error {
	if len(r.held) < maxHeld {
		return r.enter(dirfd, name)
	}
	r.moved++
	r.held[0].removed = true // it has something new
	return unix.Renameat(dirfd, name, r.held[0].fd, tempName()+"-"+itoa(r.moved))
}

func (r *remover) close() {
	for _, h := range r.held {
		unix.Close(h.fd)
	}
}
