// Package archive undoes the compression of archives that clients send. It holds
// little memory whatever the sender says, and leaves the tar inside to the box.
package archive

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// maxWindow is what a zstd frame may ask to be kept of what it unpacked; the
// command line tool makes none that need more without --ultra or --long.
const maxWindow = 32 << 20

// Plain gives the content of r as it was before gzip or zstd, told apart by
// their first bytes, or as it is. Closing it does not close r. What is broken is an
// error of class user.
func Plain(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, broken("gzip")
		}
		return z, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, broken("zstd")
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(br), nil
}

func broken(kind string) error {
	return errdefs.Userf(errdefs.InvalidArgument, "archive", "send a tar, plain or compressed with gzip or zstd", "its %s header is broken", kind)
}
