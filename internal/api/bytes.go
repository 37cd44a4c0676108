package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// mountBytes adds the plain HTTP half of the wire.
func (a *API) mountBytes() {
	for _, r := range []struct {
		pattern, name string
		h             func(http.ResponseWriter, *http.Request) error
	}{
		{"GET /v1/sessions/{id}/files", "files_get", a.getFile}, // HEAD too
		{"PUT /v1/sessions/{id}/files", "files_put", a.putFile},
		{"GET /v1/sessions/{id}/tar", "tar_get", a.getTar},
		{"PUT /v1/sessions/{id}/tar", "tar_put", a.putTar},
		{"GET /v1/sessions/{id}/dial", "dial", a.dial},
		{"PUT /v1/templates/{name}", "template_put", a.putTemplate},
		{"POST /v1/templates/{name}/build", "template_build", a.buildTemplate},
	} {
		a.metrics.add(r.name)
		a.routes.HandleFunc(r.pattern, a.plain(r.name, r.h))
	}
	a.routes.HandleFunc("/", a.plain("other", func(_ http.ResponseWriter, r *http.Request) error {
		return errdefs.Userf(errdefs.NotFound, "path "+clip(r.Method+" "+r.URL.Path), "see docs/api.md for what can be called", "there is nothing here")
	}))
}

// plain is the interceptor of plain HTTP.
func (a *API) plain(name string, h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	m := a.metrics.of(name)
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		m.running.Inc()
		defer m.running.Dec()
		err := h(w, r)
		if err == nil {
			m.done(codeOK, start)
			return
		}
		e := a.typed(r.Context(), err)
		m.done(codeOf(e.Reason), start)
		a.logFailure(r.Context(), name, e, start)
		var broken *brokenTransfer
		if errors.As(err, &broken) {
			// With the head of the answer it is a transfer that broke, and not a server that is gone.
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		a.refuse(w, r, e)
	}
}

// brokenTransfer is an error after the answer began: the only honest way to tell
// it is to break the connection.
type brokenTransfer struct{ err error }

func (b *brokenTransfer) Error() string { return "the transfer broke off: " + b.err.Error() }
func (b *brokenTransfer) Unwrap() error { return b.err }

// target is what every byte request names.
type target struct {
	session, path, user string
}

func byteTarget(r *http.Request) (t target, err error) {
	q := r.URL.Query()
	t = target{session: r.PathValue("id"), user: q.Get("user")}
	if t.path, err = checkPath("path", q.Get("path"), nil); err != nil {
		return t, err
	}
	return t, checkUser("user", t.user)
}

// checkQuery refuses parameters that nobody reads.
func checkQuery(r *http.Request, known ...string) error {
	for k := range r.URL.Query() {
		found := false
		for _, n := range known {
			found = found || k == n
		}
		if !found {
			return bad(clip(k), "use "+fmt.Sprint(known), "is not a parameter of this call")
		}
	}
	return nil
}

// getFile streams a file out, whole or one range of it.
func (a *API) getFile(w http.ResponseWriter, r *http.Request) error {
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
	if r.Method == http.MethodHead {
		info, err := g.Stat(r.Context(), t.path, true)
		if err != nil {
			return err
		}
		fileHeaders(w, info)
		if info.Type == guestproto.TypeFile {
			w.Header().Set("Content-Length", strconv.FormatInt(info.Size, 10))
		}
		return nil
	}
	return sendFile(w, r, g, t)
}

func sendFile(w http.ResponseWriter, r *http.Request, g guestclient.API, t target) error {
	ctx := r.Context()
	want, err := parseRange(r.Header.Get("Range"))
	if err != nil {
		return err
	}
	if want != nil && want.suffix {
		info, err := g.Stat(ctx, t.path, true)
		if err != nil {
			return err
		}
		want.first = max(info.Size-want.length, 0)
		want.length = -1
	}
	offset, length := int64(0), int64(-1)
	if want != nil {
		offset, length = want.first, want.length
	}
	info, body, err := g.ReadFile(ctx, t.path, t.user, offset, length)
	if err != nil {
		return err
	}
	defer body.Close()
	defer context.AfterFunc(ctx, func() { body.Close() })()
	if want != nil && !unchanged(r.Header.Get("If-Range"), info) {
		// It changed since the client's first part: it needs the whole file.
		r.Header.Del("Range")
		return sendFile(w, r, g, t)
	}
	src := bufio.NewReaderSize(body, 4<<10)
	// A helper that ends before the first bytes is an error that can still be told.
	if _, err := src.Peek(1); err != nil && err != io.EOF {
		return err
	}
	fileHeaders(w, info)
	size := info.Size
	// What says no size, such as a file of /proc, is sent until it ends.
	known := info.Type == guestproto.TypeFile && size > 0
	status := http.StatusOK
	if want != nil && known {
		if offset >= size {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return nil
		}
		end := size
		if length >= 0 {
			end = min(offset+length, size)
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, end-1, size))
		status, size = http.StatusPartialContent, end-offset
	}
	var all io.Reader = src
	if known {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		all = io.LimitReader(src, size) // it may have grown
	}
	w.WriteHeader(status)
	n, err := pump(w, all)
	if err == nil && known && n < size {
		err = errdefs.Userf(errdefs.Conflict, "file", "read it again", "it became shorter while it was read")
	}
	if err != nil {
		return &brokenTransfer{err}
	}
	return nil
}

// putFile streams a file in. The old one stays until the new one is whole.
func (a *API) putFile(w http.ResponseWriter, r *http.Request) error {
	if err := checkQuery(r, "path", "user", "op_id", "mode", "parents", "append", "offset", "no_create"); err != nil {
		return err
	}
	t, err := byteTarget(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	o := guestclient.WriteOptions{Path: t.path, User: t.user, Size: r.ContentLength}
	if o.OpID, _, err = opID(q.Get("op_id")); err != nil {
		return err
	}
	if s := q.Get("mode"); s != "" {
		m, err := strconv.ParseUint(s, 8, 32)
		if err != nil || m > 0o7777 {
			return bad("mode", "write it in octal, such as 0644", "%q is not a mode", clip(s))
		}
		o.Mode = uint32(m)
	}
	for name, into := range map[string]*bool{"parents": &o.Parents, "append": &o.Append, "no_create": &o.NoCreate} {
		if *into, err = queryBool(name, q.Get(name)); err != nil {
			return err
		}
	}
	if s := q.Get("offset"); s != "" {
		if o.Offset, err = strconv.ParseInt(s, 10, 64); err != nil || o.Offset < 0 || !o.Append {
			return bad("offset", "give the file's size, together with append=true", "%q is not an offset to append at", clip(s))
		}
	}
	g, release, err := a.guest(r.Context(), t.session)
	if err != nil {
		return err
	}
	defer release()
	info, err := g.WriteFile(r.Context(), o, r.Body)
	if err != nil {
		return err
	}
	return writeJSON(w, &dsecv1.StatResponse{Info: wireFile(info)})
}

func queryBool(name, s string) (bool, error) {
	if s == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(s)
	if err != nil {
		return false, bad(name, "use true or false", "%q is neither", clip(s))
	}
	return v, nil
}

// buffers are for bytes on their way. Few are in use at a time, so a large one costs little.
var buffers = sync.Pool{New: func() any { b := make([]byte, 128<<10); return &b }}

// pump copies src to w without the buffers that io.Copy would choose.
func pump(w io.Writer, src io.Reader) (int64, error) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{src}, *b)
}

func writeJSON(w http.ResponseWriter, m proto.Message) error {
	b, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(b, '\n'))
	return nil
}
