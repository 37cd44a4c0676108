package files

import (
	"bufio"
	"io"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/tar"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// maxLinks bounds what is remembered to write hard links as such; further ones are written as files.
const maxLinks = 1 << 16

// maxHoles bounds the extents of a sparse file; one with more is written whole.
const maxHoles = 1 << 12

func (o *op) tarOut() error {
	// What the user may not read at all is told before the stream begins.
	if err := o.as(func() error { return unix.Faccessat(unix.AT_FDCWD, o.path, unix.R_OK, unix.AT_EACCESS) }); err != nil {
		return at(o.req.Path, err)
	}
	if err := o.s.SendMessage(&guestproto.Reply{}, false); err != nil {
		return err
	}
	if err := o.pack(o.s, o.path, ""); err != nil {
		return err
	}
	return o.s.CloseSend()
}

// pack writes path as a tar: under root, or with root "" the tree below path
// with names relative to it (a path that is a file gives an entry with its own name).
func (o *op) pack(dst io.Writer, path, root string) error {
	buf := bufio.NewWriterSize(dst, chunk)
	p := packer{o: o, tw: tar.NewWriter(buf), links: map[inode]string{}, buf: make([]byte, chunk)}
	if err := p.tree(path, root); err != nil {
		return err
	}
	if err := p.tw.Close(); err != nil {
		return err
	}
	return buf.Flush()
}

type inode struct{ dev, ino uint64 }

type packer struct {
	o     *op
	tw    *tar.Writer
	links map[inode]string
	buf   []byte
}

func (p *packer) tree(path, root string) error {
	top := entry{dirfd: unix.AT_FDCWD, name: path}
	err := p.o.as(func() error {
		flags := 0
		if root != "" {
			flags = unix.AT_SYMLINK_NOFOLLOW // a link is moved itself
		}
		if err := unix.Fstatat(unix.AT_FDCWD, path, &top.st, flags); err != nil {
			return err
		}
		top.target = linkTarget(unix.AT_FDCWD, path, &top.st)
		return nil
	})
	if err != nil {
		return at(path, err)
	}
	if !isDir(&top.st) {
		if root == "" {
			if _, root, err = split(path); err != nil {
				return err
			}
		}
		return p.entry(&top, root, path)
	}
	prefix := ""
	if root != "" {
		if err := p.entry(&top, root, path); err != nil {
			return err
		}
		prefix = root + "/"
	}
	w, err := p.o.walk(path)
	if err != nil {
		return at(path, err)
	}
	defer w.close()
	for {
		e, err := w.next()
		if e == nil || err != nil {
			return err
		}
		full := join(path, e.rel)
		if err := p.entry(e, prefix+e.rel, full); err != nil {
			return err
		}
		if isDir(&e.st) {
			if err := w.enter(); err != nil {
				return at(full, err)
			}
		}
	}
}

// entry writes one entry. Sockets and devices are left out: they mean nothing elsewhere.
func (p *packer) entry(e *entry, name, full string) error {
	h := tar.Header{Name: name, Mode: e.st.Mode & 0o7777, UID: e.st.Uid, GID: e.st.Gid, ModUnix: e.st.Mtim.Sec}
	switch e.st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Type, h.Name = tar.TypeDir, name+"/"
	case unix.S_IFLNK:
		h.Type, h.Linkname = tar.TypeSymlink, e.target
	case unix.S_IFIFO:
		h.Type = tar.TypeFifo
	case unix.S_IFREG:
		if e.st.Nlink > 1 {
			id := inode{e.st.Dev, e.st.Ino}
			if first, ok := p.links[id]; ok {
				h.Type, h.Linkname = tar.TypeLink, first
				return p.tw.WriteHeader(&h)
			}
			if len(p.links) < maxLinks {
				p.links[id] = name
			}
		}
		return p.file(e, h, full)
	default:
		return nil
	}
	return p.tw.WriteHeader(&h)
}

// file writes a regular file. Its header comes first, so a file that shrinks
// meanwhile is filled up with zeros, and one that grows is cut.
func (p *packer) file(e *entry, h tar.Header, full string) error {
	fd := -1
	err := p.o.as(func() (err error) {
		fd, err = unix.Openat(e.dirfd, e.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		return err
	})
	if err == unix.ENOENT {
		return nil // removed meanwhile
	}
	if err == nil {
		defer unix.Close(fd)
		if err = unix.Fstat(fd, &e.st); err == nil && !isReg(&e.st) {
			return nil // replaced meanwhile
		}
	}
	if err != nil {
		return at(full, err)
	}
	h.Type, h.Size = tar.TypeFile, e.st.Size
	if e.st.Blocks*512 < e.st.Size {
		h.Data = extents(fd, e.st.Size)
	}
	if err := p.tw.WriteHeader(&h); err != nil {
		return err
	}
	if h.Data == nil {
		return p.content(fd, full, 0, h.Size)
	}
	for _, x := range h.Data {
		if err := p.content(fd, full, x.Offset, x.Length); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) content(fd int, full string, offset, length int64) error {
	for length > 0 {
		b := p.buf[:min(length, chunk)]
		n, err := unix.Pread(fd, b, offset)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return at(full, err)
		case n == 0:
			clear(b)
			n = len(b)
		}
		if _, err := p.tw.Write(b[:n]); err != nil {
			return err
		}
		offset += int64(n)
		length -= int64(n)
	}
	return nil
}

// extents finds the data of a sparse file; nil where the file system cannot tell, or it is in too many pieces.
func extents(fd int, size int64) []tar.Extent {
	list := []tar.Extent{}
	for off := int64(0); off < size; {
		start, err := unix.Seek(fd, off, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break
		}
		if err != nil || len(list) >= maxHoles {
			return nil
		}
		end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
		if err != nil {
			return nil
		}
		if start >= size {
			break
		}
		end = min(end, size)
		list = append(list, tar.Extent{Offset: start, Length: end - start})
		off = end
	}
	return list
}
