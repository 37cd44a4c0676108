package files

import (
	"golang.org/x/sys/unix"
)

// chunk is what content is moved in: a data frame's worth.
const chunk = 32 << 10

// read sends a file's info and its content. Files in /proc, whose size is 0, are
// read to their end as any other.
func (o *op) read() error {
	if o.req.Offset < 0 {
		return invalid("offset", "the offset is negative", "count from the file's start")
	}
	fd, st, err := o.openRegular(o.path)
	if err != nil {
		return at(o.req.Path, err)
	}
	defer unix.Close(fd)
	if o.req.Offset > 0 {
		if _, err := unix.Seek(fd, o.req.Offset, unix.SEEK_SET); err != nil {
			return at(o.req.Path, err)
		}
	}
	if err := o.s.SendMessage(o.info(st, o.req.Path, ""), false); err != nil {
		return err
	}
	buf := make([]byte, chunk)
	for left := o.req.Length; left != 0; {
		p := buf
		if left > 0 && left < chunk {
			p = buf[:left]
		}
		n, err := read(fd, p)
		if err != nil {
			return at(o.req.Path, err)
		}
		if n == 0 {
			break
		}
		if _, err := o.s.Write(p[:n]); err != nil {
			return err
		}
		if left > 0 {
			left -= int64(n)
		}
	}
	return o.s.CloseSend()
}

// openRegular opens a regular file for reading. O_NONBLOCK keeps a FIFO or a
// device from holding the open; what was opened is then judged by its descriptor.
func (o *op) openRegular(path string) (int, *unix.Stat_t, error) {
	fd, st := -1, new(unix.Stat_t)
	err := o.as(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, nil, err
	}
	if err = unix.Fstat(fd, st); err == nil {
		switch {
		case isDir(st):
			err = unix.EISDIR
		case !isReg(st):
			err = unix.ENXIO
		default:
			return fd, st, nil
		}
	}
	unix.Close(fd)
	return -1, nil, err
}
