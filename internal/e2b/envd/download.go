package envd

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// download streams a file out.
func (h *Handler) download(w http.ResponseWriter, r *http.Request) error {
	s := sandboxOf(r.Context())
	q, err := readQuery(r, &s, opRead)
	if err != nil {
		return err
	}
	g, release, err := s.guest(r.Context())
	if err != nil {
		return err
	}
	defer release()
	ctx := onBehalf(r.Context(), cmp.Or(q.user, s.User))
	info, err := g.Stat(ctx, orHome(q.path), true)
	if err != nil {
		return err
	}
	switch info.Type {
	case guestproto.TypeFile:
	case guestproto.TypeDir:
		return bad("path "+e2b.Clip(info.Path), "name a file", "it is a directory")
	default:
		return bad("path "+e2b.Clip(info.Path), "name a regular file", "it is not a regular file")
	}
	f := &content{ctx: ctx, g: g, path: info.Path, size: info.Size}
	defer f.Close()
	// What a box holds is never shown as a page of this server.
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Vary", "Accept-Encoding")
	if wantsGzip(r) {
		return f.sendGzip(w)
	}
	// It has opened the file by now, or fails before anything is sent.
	if _, err := f.Read(nil); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	http.ServeContent(w, r, "", time.Unix(0, info.ModUnix), f)
	if f.err != nil && !errors.Is(f.err, io.EOF) {
		return &brokenTransfer{f.err}
	}
	return nil
}

// wantsGzip tells whether the client takes nothing but gzip, as SDKs say when they are asked
// to compress. What every HTTP client says is not worth the time.
func wantsGzip(r *http.Request) bool {
	for _, h := range []string{"Range", "If-Modified-Since", "If-None-Match", "If-Range"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	return strings.EqualFold(strings.TrimSpace(r.Header.Get("Accept-Encoding")), "gzip")
}

// content is a file in a box as something to seek in: it is opened anew where it is read from
// another place than before.
type content struct {
	ctx    context.Context
	g      guestAPI
	path   string
	size   int64
	at     int64
	body   io.ReadCloser
	bodyAt int64
	err    error // of the last read
}

// Read reads; a file that became shorter is an error, for its length was told.
func (c *content) Read(p []byte) (n int, err error) {
	if c.body == nil || c.bodyAt != c.at {
		c.Close()
		if _, c.body, c.err = c.g.ReadFile(c.ctx, c.path, "", c.at, -1); c.err != nil {
			c.body = nil
			return 0, c.err
		}
		c.bodyAt = c.at
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, c.err = c.body.Read(p)
	c.at += int64(n)
	c.bodyAt = c.at
	if errors.Is(c.err, io.EOF) && c.at < c.size {
		c.err = io.ErrUnexpectedEOF
	}
	return n, c.err
}

// Seek implements io.Seeker.
func (c *content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}
	c.at = offset
	return offset, nil
}

// Close ends the reading.
func (c *content) Close() {
	if c.body != nil {
		_ = c.body.Close() // what it had to say was read
		c.body = nil
	}
}

func (c *content) sendGzip(w http.ResponseWriter) error {
	if _, err := c.Read(nil); err != nil {
		return err
	}
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	if _, err := io.Copy(z, struct{ io.Reader }{c}); err != nil {
		return &brokenTransfer{err}
	}
	if err := z.Close(); err != nil {
		return &brokenTransfer{err}
	}
	return nil
}
