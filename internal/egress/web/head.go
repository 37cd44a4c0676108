package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/gate"
)

const (
	maxHead = 256 << 10
	// usualHead is what a connection's head or hello may take without asking: a box may have thousands of them begun.
	usualHead = 16 << 10
)

// badRequest says why bytes are no request that is passed on.
type badRequest struct{ why string }

func (b *badRequest) Error() string { return b.why }

var errHead = errors.New("the request's head is too large")

// patience is how long a client may take to say what it wants, from its first byte on.
const patience = 15 * time.Second

// input is one side's bytes, of which a head may take only so many.
type input struct {
	*bufio.Reader
	conn  net.Conn
	limit *limited
}

// limited counts the bytes of a head. One that is larger than usual takes one of the few places that its box has for such.
type limited struct {
	r     io.Reader
	g     *gate.Gate
	left  int // negative: no limit
	large bool
}

func (l *limited) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, errHead
	}
	if l.left > 0 && maxHead-l.left >= usualHead && !l.large {
		if l.large = l.g.BeginLarge(); !l.large {
			return 0, errHead
		}
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

func newInput(conn net.Conn, g *gate.Gate) *input {
	l := &limited{r: conn, g: g, left: -1}
	return &input{Reader: bufio.NewReader(l), conn: conn, limit: l}
}

// begin limits what follows as a head; end lifts the limit. What was read is kept until done.
func (in *input) begin() {
	in.done()
	in.limit.left = maxHead
}

func (in *input) end() { in.limit.left = -1 }

// done says that the last head is needed no more.
func (in *input) done() {
	if in.limit.large {
		in.limit.large = false
		in.limit.g.EndLarge()
	}
}

// request reads one request; its body is read from the input later. io.EOF says that the client has
// ended between requests; what is no request is a *badRequest.
func (in *input) request() (*http.Request, error) {
	in.begin()
	defer in.end()
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
	_ = in.conn.SetReadDeadline(time.Now().Add(patience))
	defer func() { _ = in.conn.SetReadDeadline(time.Time{}) }()
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
