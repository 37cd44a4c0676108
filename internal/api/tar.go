package api

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"

	"github.com/klauspost/compress/zstd"
)

// getTar streams a tree out.
func (a *API) getTar(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "path", "user"); err != nil {
		return err
	}
	t, err := byteTarget(r)
	if err != nil {
		return err
	}
	g, release, err := a.guest(r.Context(), t.session)
	if err != nil {
		return err
	}
	defer release()
	body, err := g.TarOut(r.Context(), t.path, t.user)
	if err != nil {
		return err
	}
	defer body.Close()
	defer context.AfterFunc(r.Context(), func() { body.Close() })()
	// The first bytes decide whether there is a tree at all.
	src := bufio.NewReaderSize(body, 16<<10)
	if _, err := src.Peek(1); err != nil && err != io.EOF {
		return err
	}
	w.Header().Set("Content-Type", "application/x-tar")
	if _, err := pump(w, src); err != nil {
		return &brokenTransfer{err}
	}
	return nil
}

// putTar unpacks a tree: a tar, plain or compressed with gzip or zstd.
func (a *API) putTar(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "path", "user", "op_id"); err != nil {
		return err
	}
	t, err := byteTarget(r)
	if err != nil {
		return err
	}
	op, _, err := opID(r.URL.Query().Get("op_id"))
	if err != nil {
		return err
	}
	g, release, err := a.guest(r.Context(), t.session)
	if err != nil {
		return err
	}
	defer release()
	src, done, err := plainTar(r.Body)
	if err != nil {
		return err
	}
	defer done()
	if _, err := g.TarIn(r.Context(), op, t.path, t.user, src); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// plainTar undoes gzip and zstd, told apart by their first bytes, in bounded memory.
func plainTar(r io.Reader) (io.Reader, func(), error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, nil, bad("body", "send a tar, plain or compressed with gzip or zstd", "its gzip header is broken")
		}
		return z, func() { z.Close() }, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(32<<20), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, bad("body", "send a tar, plain or compressed with gzip or zstd", "its zstd header is broken")
		}
		return z, z.Close, nil
	}
	return br, func() {}, nil
}
