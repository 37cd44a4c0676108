package files

import (
	"io"

	"golang.org/x/sys/unix"
)

func (o *op) write() error {
	if o.req.Parents {
		dir, _, err := split(o.path)
		if err != nil {
			return err
		}
		if err := o.as(func() error { return o.makeDirs(dir, 0o755) }); err != nil {
			return at(dir, err)
		}
	}
	put := o.replace
	switch {
	case o.req.Append:
		put = o.appendTo
	case o.owner != nil:
		put = o.overwrite
	}
	st, err := put()
	if err != nil {
		return at(o.req.Path, err)
	}
	// The file is closed by now: a client may execute what it wrote as soon as it hears of it.
	info := o.info(st, o.req.Path, "")
	info.Attrs = o.req.Attrs
	return o.s.SendMessage(info, true)
}

// replace writes a new file and puts it in place of the old one in one step:
// readers see the one or the other, and a lost client leaves the old one. The
// new file has the old one's mode and, where the user may give it away, owner.
func (o *op) replace() (*unix.Stat_t, error) {
	t, err := o.newTarget()
	if err != nil {
		return nil, err
	}
	defer t.discard()
	if err := o.room(t.dirfd, 0); err != nil {
		return nil, err
	}
	if err := o.copyIn(func(p []byte) error { return writeAll(t.fd, p) }); err != nil {
		return nil, err
	}
	if err := o.as(t.commit); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	return &st, unix.Fstat(t.fd, &st)
}

// appendTo adds to a file in place. When the data ends early the file is cut
// back to what it was, unless somebody else wrote too.
func (o *op) appendTo() (*unix.Stat_t, error) {
	fd := -1
	flags := unix.O_WRONLY | unix.O_APPEND | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	if !o.req.NoCreate {
		flags |= unix.O_CREAT
	}
	mode := o.req.Mode & 0o7777
	if mode == 0 {
		mode = 0o644
	}
	err := o.as(func() (err error) { fd, err = unix.Open(o.path, flags, mode); return err })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if !isReg(&st) {
		return nil, unix.ENXIO
	}
	if o.req.Offset > 0 && o.req.Offset != st.Size {
		return nil, conflict("path "+o.req.Path, "the file has "+itoa(int(st.Size))+" bytes, the append was to begin at "+itoa(int(o.req.Offset)), "stat the file and go on from its size")
	}
	if err := o.room(fd, 0); err != nil {
		return nil, err
	}
	written := int64(0)
	err = o.copyIn(func(p []byte) error {
		// As the user: the kernel takes set-id bits from a file that somebody else than root writes.
		err := o.as(func() error { return writeAll(fd, p) })
		if err == nil {
			written += int64(len(p))
		}
		return err
	})
	if err != nil {
		var now unix.Stat_t
		if unix.Fstat(fd, &now) == nil && now.Size-st.Size-written < chunk && now.Size >= st.Size {
			_ = unix.Ftruncate(fd, st.Size) // the error that is told is the first one
		}
		return nil, err
	}
	return &st, unix.Fstat(fd, &st)
}

// room refuses early what was announced larger than the disk's free space and what the write itself frees of it.
func (o *op) room(fd int, frees int64) error {
	var st unix.Statfs_t
	if o.req.Size <= 0 || unix.Fstatfs(fd, &st) != nil || st.Blocks == 0 {
		return nil // nothing announced, or a file system without limit
	}
	if free := int64(st.Bavail)*st.Bsize + frees; o.req.Size > free {
		return diskFull("path "+o.req.Path, itoa(int(o.req.Size))+" bytes do not fit into "+itoa(int(free))+" free bytes")
	}
	return nil
}

// copyIn hands the stream's data to put until its end, and checks it against the announced size.
func (o *op) copyIn(put func([]byte) error) error {
	total := int64(0)
	for {
		f, err := o.s.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if !f.Data {
			return invalid("request", "a message instead of data", "send a valid request")
		}
		total += int64(len(f.Payload))
		if err := put(f.Payload); err != nil {
			return err
		}
	}
	if o.req.Size >= 0 && total != o.req.Size && o.req.Size != 0 {
		return invalid("size", itoa(int(total))+" bytes came, "+itoa(int(o.req.Size))+" were announced", "announce the right size, or none")
	}
	return nil
}
