package web

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
)

// badRequest says why bytes are no request that is passed on.
type badRequest struct{ why string }

func (b *badRequest) Error() string { return b.why }

var errHead = errors.New("the request's head is too large")

// input is a client's bytes, of which a request's head may take only so many.
type input struct {
	*bufio.Reader
	limit *limited
}

type limited struct {
	r    io.Reader
	left int // negative: no limit
}

func (l *limited) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, errHead
	}
	if l.left > 0 && len(b) > l.left {
		b = b[:l.left]
	}
	n, err := l.r.Read(b)
	if l.left > 0 {
		l.left -= n
	}
	return n, err
}

func newInput(r io.Reader) *input {
	l := &limited{r: r, left: -1}
	return &input{Reader: bufio.NewReader(l), limit: l}
}

// request reads one request; its body is read from the input later. io.EOF says that the client has
// ended between requests; what is no request is a *badRequest.
func (in *input) request() (*http.Request, error) {
	in.limit.left = maxHead
	defer func() { in.limit.left = -1 }()
	// Some clients send blank lines after a body.
	for range 4 {
		b, err := in.Peek(1)
		if err != nil {
			return nil, err
		}
		if b[0] != '\r' && b[0] != '\n' {
			break
		}
		_, _ = in.Discard(1)
	}
	req, err := http.ReadRequest(in.Reader)
	switch {
	case errors.Is(err, errHead):
		return nil, &badRequest{errHead.Error()}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, io.EOF
	case err != nil:
		return nil, &badRequest{"not an HTTP/1 request"}
	case req.ProtoMajor != 1:
		return nil, &badRequest{"only HTTP/1 is passed on"}
	}
	for name := range req.Header {
		if strings.ContainsAny(name, " \t") { // another reader may take it for the header without the space
			return nil, &badRequest{"a header's name has a space"}
		}
	}
	return req, nil
}
