package template

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// FileArchive is a tar, plain or compressed, that can be read several times.
type FileArchive struct {
	// Digest tells it from every other content.
	Digest string
	Open   func() (io.ReadCloser, error)
}

// each reads the archive once. Names are clean; what no layer can hold is an error.
func (a FileArchive) each(ctx context.Context, do func(h *tar.Header, r io.Reader) error) error {
	f, err := a.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := layer.Decompress(f)
	if err != nil {
		return err
	}
	defer r.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return errdefs.Userf(errdefs.InvalidArgument, "archive", "upload it again", "cannot be read: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		name := path.Clean("/" + h.Name)[1:]
		if strings.Contains("/"+h.Name+"/", "/../") {
			return errdefs.Userf(errdefs.InvalidArgument, "archive", "keep files inside the build's directory", "%q leads out of it", h.Name)
		}
		h.Name = name
		if err := do(h, tr); err != nil {
			return err
		}
	}
}

// ArchiveFile is an archive in a file, known by its plain content: a compressor writes the time into
// what it makes.
func ArchiveFile(path string) (FileArchive, error) {
	open := func() (io.ReadCloser, error) { return os.Open(path) }
	f, err := open()
	if err != nil {
		return FileArchive{}, err
	}
	defer f.Close()
	r, err := layer.Decompress(f)
	if err != nil {
		return FileArchive{}, err
	}
	defer r.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(r, layer.DefaultLimits.Bytes+1))
	if err != nil {
		return FileArchive{}, errdefs.Userf(errdefs.InvalidArgument, "archive", "send a whole tar, plain or compressed", "cannot be unpacked: %w", err)
	}
	if n > layer.DefaultLimits.Bytes {
		return FileArchive{}, errdefs.Limitf(errdefs.TooLarge, "archive", "copy fewer files", "unpacked it has more than %d bytes", layer.DefaultLimits.Bytes)
	}
	return FileArchive{Digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), Open: open}, nil
}
