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
	return o.as(func() error {
		dirfd, name, err := parent(path)
		if err != nil {
			return err
		}
		defer unix.Close(dirfd)
		err = removeOne(dirfd, name)
		if err == unix.ENOTEMPTY && recursive {
			err = removeTree(dirfd, name)
		}
		return err
	})
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
// following links and with few descriptors.
func removeTree(dirfd int, name string) error {
	r := remover{buf: make([]byte, 16<<10)}
	defer r.close()
	if err := r.enter(dirfd, name); err != nil {
		return err
	}
	for len(r.held) > 0 {
		if err := r.step(); err != nil {
			return err
		}
	}
	return removeOne(dirfd, name)
}

type remover struct {
	held  []held
	moved int
	buf   []byte
}

type held struct {
	fd   int
	name string
}

func (r *remover) enter(dirfd int, name string) error {
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		r.held = append(r.held, held{fd, name})
	}
	return err
}

// step removes a batch of the innermost directory's entries, or goes into one, or leaves it.
func (r *remover) step() error {
	top := r.held[len(r.held)-1]
	// What was removed shifts what is left: read from the start every time.
	if _, err := unix.Seek(top.fd, 0, unix.SEEK_SET); err != nil {
		return err
	}
	empty := true
	for {
		n, err := unix.Getdents(top.fd, r.buf)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		for _, name := range names(r.buf[:n]) {
			empty = false
			switch err := removeOne(top.fd, name); err {
			case nil, unix.ENOENT:
			case unix.ENOTEMPTY:
				return r.deeper(top.fd, name)
			default:
				return err
			}
		}
	}
	if !empty {
		return nil
	}
	unix.Close(top.fd)
	r.held = r.held[:len(r.held)-1]
	if len(r.held) == 0 {
		return nil
	}
	err := removeOne(r.held[len(r.held)-1].fd, top.name)
	if err == unix.ENOTEMPTY || err == unix.ENOENT {
		return nil // somebody else is at work in it; it comes up again
	}
	return err
}

func (r *remover) deeper(dirfd int, name string) error {
	if len(r.held) < maxHeld {
		return r.enter(dirfd, name)
	}
	r.moved++
	return unix.Renameat(dirfd, name, r.held[0].fd, tempName()+"-"+itoa(r.moved))
}

func (r *remover) close() {
	for _, h := range r.held {
		unix.Close(h.fd)
	}
}
