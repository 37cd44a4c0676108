package layer

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/ctxread"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// AddTar puts every entry of an uncompressed tar stream into the layer and reads
// the stream to its end.
func (w *Writer) AddTar(r io.Reader) error {
	r = ctxread.Reader(w.ctx, r) // also in an archive that never comes to an entry
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return badArchive(err)
		}
		if err := w.Add(h, tr); err != nil {
			return err
		}
	}
	// What follows the end mark counts for the digest of the stream, within reason.
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxTrailer))
	if n == maxTrailer {
		return tooLarge("archive", "more than %d bytes follow its end", int64(maxTrailer))
	}
	return err
}

const maxTrailer = 64 << 20

// badArchive keeps the reader's own failures (network, cancellation) apart from
// a broken archive.
func badArchive(err error) error {
	if _, ok := errors.AsType[*errdefs.Error](err); ok {
		return err
	}
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrFieldTooLong) {
		return errdefs.Userf(errdefs.InvalidArgument, "archive", "check that it is a whole tar archive", "cannot be read: %w", err)
	}
	return err
}

// Decompress gives the plain content of a gzip, zstd, bzip2 or uncompressed stream,
// told by its first bytes.
func Decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(6)
	if err != nil && err != io.EOF {
		return nil, err
	}
	bad := func(err error) error {
		return errdefs.Userf(errdefs.InvalidArgument, "archive", "check that it is whole", "cannot be unpacked: %w", err)
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, bad(err)
		}
		return z, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, bad(err)
		}
		return z.IOReadCloser(), nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return io.NopCloser(bzip2.NewReader(br)), nil
	case bytes.HasPrefix(head, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, errdefs.Userf(errdefs.Unsupported, "archive", "unpack it first: xz -dk FILE", "xz compression is not supported")
	}
	return io.NopCloser(br), nil
}

// AddDir copies a directory tree into the layer as it is on disk. Links of one
// inode stay links; sockets and device nodes are left out; mount points below it
// come as empty directories.
func (w *Writer) AddDir(dir string) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return errdefs.Userf(errdefs.InvalidArgument, "directory "+dir, "give a readable directory", "cannot be opened: %w", err)
	}
	defer f.Close()
	type inode struct{ dev, ino uint64 }
	links := map[inode]string{}
	return walk(w.ctx, f, func(e *entry) error {
		h, err := e.header()
		if err != nil || h == nil {
			if h == nil {
				w.Dropped++
			}
			return err
		}
		if e.kind() != unix.S_IFREG {
			return w.Add(h, nil)
		}
		if e.st.Nlink > 1 {
			id := inode{e.st.Dev, e.st.Ino}
			if first, ok := links[id]; ok {
				return w.Add(&tar.Header{Typeflag: tar.TypeLink, Name: e.path, Linkname: first}, nil)
			}
			links[id] = e.path
		}
		content, err := e.openFile()
		if err != nil {
			return err
		}
		defer content.Close()
		return w.Add(h, content)
	})
}

// header is e as a tar header; nil for what no archive holds.
func (e *entry) header() (*tar.Header, error) {
	h := &tar.Header{Name: e.path, Mode: int64(e.st.Mode & 0o7777), Uid: int(e.st.Uid), Gid: int(e.st.Gid),
		ModTime: time.Unix(e.st.Mtim.Sec, 0), PAXRecords: map[string]string{}}
	for _, x := range e.xattrs {
		h.PAXRecords[paxXattr+x.name] = x.value
	}
	switch e.kind() {
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, e.st.Size
	case unix.S_IFLNK:
		h.Typeflag, h.Linkname = tar.TypeSymlink, e.target
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR:
		h.Typeflag = tar.TypeChar
		h.Devmajor, h.Devminor = int64(unix.Major(e.st.Rdev)), int64(unix.Minor(e.st.Rdev))
	case unix.S_IFBLK:
		h.Typeflag = tar.TypeBlock
	case unix.S_IFSOCK:
		return nil, nil
	default:
		return nil, fmt.Errorf("%s: unknown file type %o", e.path, e.kind())
	}
	return h, nil
}
