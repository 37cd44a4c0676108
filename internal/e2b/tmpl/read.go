package tmpl

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// maxBody bounds a request's JSON: steps carry commands, not files.
const maxBody = 8 << 20

// read decodes a body. A field that is not known is refused, because ignoring it would be a lie.
func read(r *http.Request, v any) error {
	d := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("something follows it")
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errdefs.Limitf(errdefs.TooLarge, "request", "upload files instead of writing them into commands", "has more than %d bytes", tooLarge.Limit)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return errdefs.Userf(errdefs.InvalidArgument, "request", "see docs/e2b.md for what is supported", "its JSON cannot be used: %w", err)
	}
	return nil
}

func caller(r *http.Request) e2b.Caller { return e2b.CallerOf(r.Context()) }

// number reads a query parameter between least and most.
func number(r *http.Request, name string, otherwise, least, most int) (int, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least {
		return 0, errdefs.Userf(errdefs.InvalidArgument, "parameter "+name, "give a number from "+strconv.Itoa(least), "%.40q is none", s)
	}
	return min(n, most), nil
}

// choice reads a query parameter that is one of a few words.
func choice(r *http.Request, name, otherwise string, words ...string) (string, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return otherwise, nil
	}
	for _, w := range words {
		if s == w {
			return s, nil
		}
	}
	return "", errdefs.Userf(errdefs.InvalidArgument, "parameter "+name, "see docs/e2b.md", "%.40q is not known", s)
}

func unknown(r *http.Request) error {
	return errdefs.Userf(errdefs.NotFound, "call "+r.Method+" "+r.URL.Path, "see docs/e2b.md for what there is", "there is nothing here")
}
