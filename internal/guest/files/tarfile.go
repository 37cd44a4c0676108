package files

import (
	"io"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/tar"
)

// file unpacks a regular file. Small ones, the most, take one turn as the user.
func (u *unpacker) file(dirfd int, name string, h *tar.Header, content io.Reader) error {
	if u.buf == nil {
		u.buf = make([]byte, chunk)
	}
	small := h.Data == nil && h.Size <= chunk
	if small {
		if _, err := io.ReadFull(content, u.buf[:h.Size]); err != nil {
			return err
		}
	}
	fd := -1
	err := u.o.as(func() (err error) {
		if err = replaceable(dirfd, name); err != nil {
			return err
		}
		fd, err = unix.Openat(dirfd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err == nil && small {
			if err = writeAll(fd, u.buf[:h.Size]); err == nil {
				err = u.apply(fd, h)
			}
		}
		return err
	})
	if fd < 0 {
		return err
	}
	defer unix.Close(fd)
	if err == nil && !small {
		if err = u.content(fd, h, content); err == nil {
			err = u.o.as(func() error { return u.apply(fd, h) })
		}
	}
	if err != nil {
		_ = u.o.as(func() error { return unix.Unlinkat(dirfd, name, 0) }) // no half files; the first error is told
	}
	return err
}

func (u *unpacker) content(fd int, h *tar.Header, content io.Reader) error {
	if h.Data == nil {
		return u.copy(fd, content, h.Size)
	}
	for _, x := range h.Data {
		if _, err := unix.Seek(fd, x.Offset, unix.SEEK_SET); err != nil {
			return err
		}
		if err := u.copy(fd, content, x.Length); err != nil {
			return err
		}
	}
	return unix.Ftruncate(fd, h.Size)
}

func (u *unpacker) copy(fd int, content io.Reader, n int64) error {
	for n > 0 {
		k, err := content.Read(u.buf[:min(n, chunk)])
		if k > 0 {
			if werr := writeAll(fd, u.buf[:k]); werr != nil {
				return werr
			}
			n -= int64(k)
		}
		if err == io.EOF && n > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// apply gives an open file or directory what its header says.
func (u *unpacker) apply(fd int, h *tar.Header) error {
	u.chown(fd, "", h)
	if err := unix.Chmod(procFD(fd), h.Mode); err != nil {
		return err
	}
	t := unix.Timespec{Sec: h.ModUnix}
	return unix.UtimesNanoAt(unix.AT_FDCWD, procFD(fd), []unix.Timespec{t, t}, 0)
}

// chown gives an entry to the archive's owner, as root does. An owner whom the
// box does not have leaves it with root; so a plain user's files stay the user's.
func (u *unpacker) chown(dirfd int, name string, h *tar.Header) {
	if u.o.who.uid == 0 {
		_ = unix.Fchownat(dirfd, name, int(h.UID), int(h.GID), unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH)
	}
}
