package api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// bodyStall is how long a client may send nothing of a body that it began, or take
// nothing of an answer. Tests shorten it.
var bodyStall = time.Minute

// held is how much of a request's body the server has in memory at a time.
type held struct {
	// most bounds it, as it is when it is unpacked; 0: nothing is counted here, because it is passed on
	// as it comes, or was counted by its announced size.
	most int64
	// packed tells that it comes compressed.
	packed bool
	// pauses tells that it may take as long as its sender likes.
	pauses bool
}

// unpacksTo is how many bytes one byte of gzip can stand for, which is all that anybody knows of a
// compressed message before it is unpacked.
const unpacksTo = 1032

// packed tells whether a message is compressed, by the headers of Connect's and gRPC's calls.
func packed(h http.Header) bool {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if e := h.Get(name); e != "" && !strings.EqualFold(e, "identity") {
			return true
		}
	}
	return false
}

// guardBody ends a request whose body stalls, says whose fault a broken body is, and counts
// what is held of it. r is not the server's own request. What was counted is given back by the returned function.
func (a *API) guardBody(w http.ResponseWriter, r *http.Request, how held) (release func()) {
	if r.ContentLength == 0 { // among them what becomes a stream of bytes, which may pause
		return func() {}
	}
	b := &guardedBody{ReadCloser: r.Body, how: how}
	if !how.pauses {
		b.rc = http.NewResponseController(w)
	}
	if how.most > 0 {
		b.large = &a.large
	}
	r.Body = b
	return b.release
}

type guardedBody struct {
	io.ReadCloser
	rc         *http.ResponseController // nil: it may pause
	how        held
	large      *largeBodies // nil: not counted here
	read, held int64
}

// Read sets a new deadline each time, and takes it back at the body's end: there
// it would govern how the server notices that the client has gone.
func (b *guardedBody) Read(p []byte) (int, error) {
	if b.rc != nil && b.rc.SetReadDeadline(time.Now().Add(bodyStall)) != nil {
		b.rc = nil
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && b.rc != nil {
		b.rc.SetReadDeadline(time.Time{})
		b.rc = nil
	}
	if e := b.count(n); e != nil {
		return 0, e
	}
	return n, bodyError(err)
}

// count takes what is held beyond a small message. A compressed one counts as what it may become.
func (b *guardedBody) count(n int) error {
	if b.large == nil {
		return nil
	}
	b.read += int64(n)
	whole := b.read
	if b.how.packed {
		whole *= unpacksTo
	}
	more := min(whole, b.how.most) - smallMessage - b.held
	if more <= 0 {
		return nil
	}
	if err := b.large.take(more); err != nil {
		return err
	}
	b.held += more
	return nil
}

func (b *guardedBody) release() {
	if b.held > 0 {
		b.large.give(b.held)
		b.held = 0
	}
}

// bodyError types what kept a body from being read to its end: the client, whose network it is too.
func bodyError(err error) error {
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil, err == io.EOF, errors.As(err, &tooLarge):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errdefs.Userf(errdefs.TimedOut, "request body", "send it again, without such pauses", "nothing of it came for %v: %w", bodyStall, err)
	}
	return errdefs.Userf(errdefs.Canceled, "request body", "send it again", "it broke off: %w", err)
}

// answer gives up a client that takes nothing of what it asked for: it would hold its handler,
// and the session's idle clock, for as long as it likes. That is not the platform's failure.
type answer struct {
	http.ResponseWriter
	rc  *http.ResponseController
	err error // of a flush
}

func newAnswer(w http.ResponseWriter) *answer { return &answer{w, http.NewResponseController(w), nil} }

// buffered is what the server keeps without writing it to the client, and less.
const buffered = 2 << 10

func (a *answer) Write(p []byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	if len(p) < buffered {
		return a.ResponseWriter.Write(p)
	}
	defer a.patiently()()
	n, err := a.ResponseWriter.Write(p)
	return n, notTaken(err)
}

// Flush implements http.Flusher. What goes wrong is told by the next Write.
func (a *answer) Flush() {
	defer a.patiently()()
	a.err = notTaken(a.rc.Flush())
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// patiently bounds a write. What takes long between two writes is the command's affair.
func (a *answer) patiently() (done func()) {
	_ = a.rc.SetWriteDeadline(time.Now().Add(bodyStall)) // where it cannot be set, it is not bounded
	return func() { _ = a.rc.SetWriteDeadline(time.Time{}) }
}

func notTaken(err error) error {
	if err == nil || errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return errdefs.Userf(errdefs.Canceled, "answer", "ask again", "the client did not take all of it: %w", err)
}
