package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Writer puts entries into a layer that is being made. What it is given may be
// hostile: nothing leaves the layer's own directory, and what a box must not
// have (device nodes, attributes that the kernel or overlay obeys) is dropped.
// Not safe for concurrent use.
type Writer struct {
	ctx     context.Context
	opts    WriteOptions
	limits  Limits
	tree    *tree
	keepIDs bool // chown needs root; without it everything belongs to the caller
	dirs    map[string]meta
	hidden  map[string]bool // whiteouts made of OCI marks
	entries int64
	bytes   int64
	buf     []byte
	Dropped int // device nodes and sockets left out
}

// meta is what a directory gets at the end, after its content has stopped
// changing its times and while its mode can no longer lock us out.
type meta struct {
	mode     uint32
	uid, gid int
	mtime    int64
	xattrs   []xattr
}

func newWriter(ctx context.Context, dir string, o WriteOptions, l Limits) (*Writer, error) {
	t, err := openTree(dir)
	if err != nil {
		return nil, err
	}
	w := &Writer{ctx: ctx, opts: o, limits: l, tree: t, keepIDs: os.Geteuid() == 0,
		dirs: map[string]meta{"": {mode: 0o755}}, hidden: map[string]bool{}, buf: make([]byte, 128<<10)}
	t.made = func(name string) { w.dirs[name] = meta{mode: 0o755} }
	return w, nil
}

// Add puts one entry into the layer; a later one of the same name wins. Content
// of a regular file is read from r.
func (w *Writer) Add(h *tar.Header, r io.Reader) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	name, err := cleanName(h.Name)
	if err != nil {
		return badEntry(h.Name, "%w", err)
	}
	if w.entries++; w.entries > w.limits.Entries {
		return tooLarge("layer", "it has more than %d entries", w.limits.Entries)
	}
	if name == "" && h.Typeflag != tar.TypeDir && h.Typeflag != tar.TypeXGlobalHeader {
		return badEntry(h.Name, "only a directory can be the root")
	}
	if base := path.Base(name); w.opts.Whiteouts && strings.HasPrefix(base, whPrefix) {
		err = w.whiteout(path.Dir(name), strings.TrimPrefix(base, whPrefix))
	} else if err = w.reveal(name); err == nil {
		err = w.add(name, h, r)
	}
	if err != nil && w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	return entryError(h.Name, err)
}

func (w *Writer) add(name string, h *tar.Header, r io.Reader) error {
	m := metaOf(h, w.opts.Overlay)
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return w.file(name, h.Size, m, r)
	case tar.TypeDir:
		return w.dir(name, m)
	case tar.TypeSymlink:
		return w.symlink(name, h.Linkname, m)
	case tar.TypeLink:
		return w.link(name, h.Linkname)
	case tar.TypeFifo:
		return w.node(name, unix.S_IFIFO, m)
	case tar.TypeChar:
		if w.opts.Overlay && h.Devmajor == 0 && h.Devminor == 0 {
			return w.node(name, unix.S_IFCHR, meta{})
		}
		w.Dropped++
		return nil
	case tar.TypeBlock:
		w.Dropped++
		return nil
	case tar.TypeXGlobalHeader:
		return nil
	}
	return fmt.Errorf("unknown entry type %q", h.Typeflag)
}

// place makes room for name: whatever was there goes. It tells whether that was
// a whiteout, which a directory must remember.
func (w *Writer) place(name string) (fd int, base string, wasWhiteout bool, err error) {
	fd, base, err = w.tree.parent(name)
	if err != nil {
		return -1, "", false, err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
		return fd, base, false, nil
	} else if err != nil {
		return -1, "", false, err
	}
	w.tree.forget()
	return fd, base, isWhiteout(&st), w.tree.remove(fd, base)
}

func (w *Writer) file(name string, size int64, m meta, r io.Reader) error {
	if w.bytes += size; size < 0 || w.bytes > w.limits.Bytes {
		return tooLarge("layer", "it holds more than %d bytes", w.limits.Bytes)
	}
	fd, base, _, err := w.place(name)
	if err != nil {
		return err
	}
	n, err := unix.Openat(fd, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(n), base)
	defer f.Close()
	if err := w.copySparse(f, r, size); err != nil {
		return err
	}
	return w.apply(f, m)
}

// copySparse writes size bytes, leaving holes for blocks of zeros.
func (w *Writer) copySparse(f *os.File, r io.Reader, size int64) error {
	hole := false
	for off := int64(0); off < size; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(r, w.buf[:min(int64(len(w.buf)), size-off)])
		if err != nil {
			return fmt.Errorf("content ends early: %w", err)
		}
		if hole = isZero(w.buf[:n]); !hole {
			if _, err := f.WriteAt(w.buf[:n], off); err != nil {
				return err
			}
		}
		off += int64(n)
	}
	if hole {
		return f.Truncate(size)
	}
	return nil
}

func isZero(b []byte) bool {
	return b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

// apply gives an open file or directory its final attributes. The order
// matters: a change of owner clears set-id bits and capabilities.
func (w *Writer) apply(f *os.File, m meta) error {
	fd := int(f.Fd())
	if w.keepIDs {
		if err := unix.Fchown(fd, m.uid, m.gid); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, m.mode); err != nil {
		return err
	}
	for _, x := range m.xattrs {
		err := unix.Fsetxattr(fd, x.name, []byte(x.value), 0)
		if errors.Is(err, unix.EPERM) && !w.keepIDs && x.name == xattrCaps {
			continue // like ids, capabilities are beyond a caller without root
		}
		if err != nil {
			return fmt.Errorf("attribute %s: %w", x.name, err)
		}
	}
	ts := unix.NsecToTimeval(m.mtime * 1e9)
	return unix.Futimes(fd, []unix.Timeval{ts, ts})
}

func (w *Writer) dir(name string, m meta) error {
	if name == "" {
		w.dirs[""] = m
		return nil
	}
	fd, base, err := w.tree.parent(name)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	err = unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if w.isOpaque(name) {
			m.xattrs = append(m.xattrs, xattr{xattrOpaque, "y"})
		}
		w.dirs[name] = m
		return nil
	}
	fd, base, hidden, err := w.place(name)
	if err != nil {
		return err
	}
	if hidden {
		m.xattrs = append(m.xattrs, xattr{xattrOpaque, "y"})
	}
	w.dirs[name] = m
	return unix.Mkdirat(fd, base, 0o700)
}
