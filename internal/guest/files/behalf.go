package files

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// onBehalf makes the op act with the power of the box's root for its user: see
// guestproto.FileRequest.
func (o *op) onBehalf() {
	if o.req.Path == "" || o.req.Path[0] != '/' {
		o.path = path.Clean(o.path)
	}
	o.req.Path = o.path
	who := o.who
	o.who, o.owner = identity{}, &who
}

// own gives an open file to the user on whose behalf it was made.
func (o *op) own(fd int) error {
	if o.owner == nil || o.led {
		return nil
	}
	return unix.Fchown(fd, int(o.owner.uid), int(o.owner.gid))
}

// makeDirs makes a directory and its missing parents; on somebody's behalf the new ones are theirs.
func (o *op) makeDirs(dir string, mode uint32) error {
	if o.owner == nil {
		_, err := makeDirs(dir, mode)
		return err
	}
	p, err := o.lead(dir)
	if err != nil {
		return err
	}
	defer func() { unix.Close(p.dirfd) }()
	if p.theirs {
		return o.asOwner(func() error { _, err := makeDirs(join(procFD(p.dirfd), p.rest), mode); return err })
	}
	for p.missing {
		name, after := first(p.rest)
		bits := mode
		if after != "" {
			bits = 0o755
		}
		err := o.makeIn(p.dirfd, name, bits)
		if err != nil && err != unix.EEXIST { // then another op was faster
			return err
		}
		fd, err := unix.Openat(p.dirfd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		unix.Close(p.dirfd)
		p.dirfd, p.rest, p.missing = fd, after, after != ""
	}
	return p.isDir()
}

// makeDir makes one directory.
func (o *op) makeDir(dir string, mode uint32) error {
	if o.owner == nil {
		return unix.Mkdir(dir, mode)
	}
	p, err := o.lead(dir)
	if err != nil {
		return err
	}
	defer unix.Close(p.dirfd)
	switch _, after := first(p.rest); {
	case p.theirs:
		return o.asOwner(func() error { return unix.Mkdirat(p.dirfd, p.rest, mode) })
	case p.missing && after != "":
		return unix.ENOENT
	case p.rest == "":
		return unix.EEXIST
	}
	return o.makeIn(p.dirfd, p.rest, mode)
}

// makeIn makes a directory in dirfd. What is given away is the directory that was made, whatever
// takes its name meanwhile.
func (o *op) makeIn(dirfd int, name string, mode uint32) error {
	if err := unix.Mkdirat(dirfd, name, mode); err != nil {
		return err
	}
	fd, err := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return o.own(fd)
}

// overwrite writes into the file itself, new or old, and gives it to the user. Of a write that
// fails nothing stays: no new file, and no part of what came in an old one.
func (o *op) overwrite() (*unix.Stat_t, error) {
	var f inPlace
	err := o.as(func() (err error) { f, err = o.openToWrite(); return err })
	if err != nil {
		return nil, err
	}
	defer f.close()
	as := o.as
	if o.led {
		as = o.asOwner
	}
	var st unix.Stat_t
	if err := o.fill(&f, as, &st); err != nil {
		_ = as(func() error { f.undo(); return nil })
		return nil, err
	}
	return &st, unix.Fstat(f.fd, &st)
}

func (o *op) fill(f *inPlace, as func(func() error) error, st *unix.Stat_t) error {
	if err := unix.Fstat(f.fd, st); err != nil {
		return err
	}
	if !isReg(st) {
		return unix.ENXIO
	}
	if err := o.room(f.fd, st.Blocks*512); err != nil { // the old content is still there
		return err
	}
	if err := as(func() error { return unix.Ftruncate(f.fd, 0) }); err != nil {
		return err
	}
	f.emptied = true
	err := o.as(func() error {
		if err := o.own(f.fd); err != nil {
			return err
		}
		return o.setAttrs(f.fd)
	})
	if err != nil {
		return err
	}
	return o.copyIn(func(p []byte) error {
		err := writeAll(f.fd, p)
		if err == nil {
			f.written += int64(len(p))
		}
		return err
	})
}

// openToWrite opens the file with root's power, or behind a link that root does not stand for
// with the user's own. What is opened by the latter keeps its owner.
func (o *op) openToWrite() (inPlace, error) {
	f := inPlace{fd: -1, dirfd: -1}
	if strings.HasSuffix(o.path, "/") {
		return f, unix.EISDIR
	}
	p, err := o.lead(o.path)
	if err != nil {
		return f, err
	}
	defer func() {
		if f.dirfd < 0 {
			unix.Close(p.dirfd)
		}
	}()
	if _, after := first(p.rest); p.missing && after != "" {
		return f, unix.ENOENT
	}
	if !p.theirs {
		err := o.openIn(&f, p.dirfd, p.rest, unix.O_NOFOLLOW)
		return f, err
	}
	err = o.asOwner(func() error {
		var st unix.Stat_t
		if unix.Lstat(o.path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			user := op{who: *o.owner}
			if err := user.planted(o.path, &st); err != nil {
				return err
			}
		}
		return o.openIn(&f, p.dirfd, p.rest, 0)
	})
	o.led = err == nil
	return f, err
}

// openIn opens an old file without asking to make it: where everybody may write, the kernel
// refuses that even to root when the file is somebody else's. Where there is none it makes one.
func (o *op) openIn(f *inPlace, dirfd int, name string, flags int) (err error) {
	flags |= unix.O_WRONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	f.fd, err = unix.Openat(dirfd, name, flags, 0)
	if err != unix.ENOENT || o.req.NoCreate {
		return err
	}
	mode := o.req.Mode & 0o7777
	if mode == 0 {
		mode = 0o644
	}
	f.fd, err = unix.Openat(dirfd, name, flags|unix.O_CREAT|unix.O_EXCL, mode)
	if err == unix.EEXIST { // a link to nowhere, or another op was faster
		f.fd, err = unix.Openat(dirfd, name, flags|unix.O_CREAT, mode)
		return err
	}
	if err == nil {
		f.dirfd, f.name = dirfd, name
	}
	return err
}

// asOwner runs fn with the power of the user alone.
func (o *op) asOwner(fn func() error) error { return o.w.threads.run(*o.owner, fn) }

// more tells what else is told on somebody's behalf: attributes, and what a symbolic link leads
// to. path is the file's, name is it in dirfd.
func (o *op) more(i *guestproto.FileInfo, path string, dirfd int, name string) {
	if o.owner == nil {
		return
	}
	_ = o.as(func() error { i.Attrs = o.attrs(path); return nil })
	if i.Type != guestproto.TypeSymlink {
		return
	}
	_ = o.as(func() error { // one that leads nowhere is no error
		fd, err := unix.Openat(dirfd, name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		buf := make([]byte, guestproto.MaxPath)
		n, err := unix.Readlink(procFD(fd), buf)
		if err != nil {
			return err
		}
		i.LeadsTo, i.LeadsToType, i.LeadsToMode = string(buf[:n]), fileType(st.Mode), st.Mode&0o7777
		return nil
	})
}
