package api

import (
	"bufio"
	"context"
	"io"
	"net/http"

	"github.com/dsec-platform/dsec/internal/archive"
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
	src, err := archive.Plain(r.Body)
	if err != nil {
		return err
	}
	defer src.Close()
	if _, err := g.TarIn(r.Context(), op, t.path, t.user, src); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
