package envd

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
)

// written is what a client is told of a file that it wrote.
type written struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// upload streams files in: one as the body itself, or any number as parts of a form, whose
// file names are their paths.
func (h *Handler) upload(w http.ResponseWriter, r *http.Request) error {
	s := sandboxOf(r.Context())
	q, err := readQuery(r, &s, opWrite)
	if err != nil {
		return err
	}
	attrs, err := metadataOf(r.Header)
	if err != nil {
		return err
	}
	body, size, err := decoded(r)
	if err != nil {
		return err
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	isForm := strings.HasPrefix(kind, "multipart/")
	switch {
	case err != nil || kind != "application/octet-stream" && !isForm:
		return bad("header Content-Type", "send multipart/form-data or application/octet-stream", "%q is neither", e2b.Clip(r.Header.Get("Content-Type")))
	case isForm && params["boundary"] == "":
		return bad("header Content-Type", "name the form's boundary", "it has none")
	case !isForm && q.path == "":
		return bad("query path", "name the file", "it is missing")
	}
	g, release, err := s.guest(r.Context())
	if err != nil {
		return err
	}
	defer release()
	u := &uploader{ctx: onBehalf(r.Context(), cmp.Or(q.user, s.User)), g: g, query: q, attrs: attrs, done: []written{}}
	if isForm {
		err = u.form(multipart.NewReader(body, params["boundary"]))
	} else {
		err = u.put(q.path, body, size)
	}
	if err != nil {
		return err
	}
	e2b.WriteJSON(w, http.StatusOK, u.done)
	return nil
}

// decoded gives the body without its compression, and its size or -1.
func decoded(r *http.Request) (io.Reader, int64, error) {
	switch e := strings.ToLower(strings.TrimSpace(r.Header.Get("Content-Encoding"))); e {
	case "", "identity":
		return r.Body, r.ContentLength, nil
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, 0, bodyError(err)
		}
		return &unpacked{z, maxBody}, -1, nil
	default:
		return nil, 0, bad("header Content-Encoding", "send gzip, or nothing encoded", "%q cannot be decoded", e2b.Clip(e))
	}
}

// unpacked bounds what a body becomes: the parts of a form that are passed over fill no disk that would end it.
type unpacked struct {
	io.Reader
	left int64
}

func (u *unpacked) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if u.left -= int64(n); u.left < 0 {
		return 0, errdefs.Limitf(errdefs.TooLarge, "request body", "send less at a time", "it has more than %d bytes when it is unpacked", int64(maxBody))
	}
	return n, err
}

type uploader struct {
	ctx   context.Context
	g     guestAPI
	query fileQuery
	attrs []string // of every file
	done  []written
}

// form writes the files of a form as they come. Other parts are passed over.
func (u *uploader) form(form *multipart.Reader) error {
	seen := map[string]bool{}
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) && len(seen) > 0 {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return bad("form", "send files as parts of the name file", "it has none")
		}
		if err != nil {
			return bodyError(err)
		}
		if part.FormName() != "file" {
			continue
		}
		to := u.query.path
		if !u.query.hasPath {
			if to, err = fileName(part.Header.Get("Content-Disposition")); err != nil {
				return err
			}
		}
		switch {
		case to == "":
			return bad("form", "give each file's path as its file name, or one as the query path", "a file has no path")
		case seen[to]:
			return bad("path "+e2b.Clip(to), "send it once", "the form has two files of this path; the first was written")
		case len(seen) == maxFiles:
			return errdefs.Limitf(errdefs.TooLarge, "form", "send several forms", "it has more than %d files", maxFiles)
		}
		seen[to] = true
		if err := checkPath("path", to); err != nil {
			return err
		}
		if err := u.put(to, part, -1); err != nil {
			return err
		}
	}
}

// fileName gives the file name of a part with all its directories.
func fileName(disposition string) (string, error) {
	_, params, err := mime.ParseMediaType(disposition)
	if err != nil {
		return "", bad("form", "write Content-Disposition: form-data; name=\"file\"; filename=\"…\"", "a part's name cannot be read")
	}
	return params["filename"], nil
}

// put writes one file.
func (u *uploader) put(to string, body io.Reader, size int64) error {
	info, err := u.g.WriteFile(u.ctx, guestclient.WriteOptions{Path: to, Parents: true, Size: size, Attrs: u.attrs}, typedBody{body})
	if err != nil {
		return err
	}
	u.done = append(u.done, written{Path: utf8Text(info.Path), Name: utf8Text(path.Base(info.Path)), Type: "file", Metadata: metadata(u.attrs)})
	return nil
}

// typedBody says whose fault it is that a body cannot be read to its end.
type typedBody struct{ io.Reader }

func (b typedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, bodyError(err)
	}
	return n, err
}

func bodyError(err error) error {
	if e, ok := errors.AsType[*errdefs.Error](err); ok {
		return e
	}
	return bad("request body", "send it again, whole", "it is broken or broke off: %v", err)
}
