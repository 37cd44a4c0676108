package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/gate"
)

// stream is a connection of which only the reading side is there.
type stream struct {
	net.Conn
	io.Reader
}

func (s stream) Read(b []byte) (int, error) { return s.Reader.Read(b) }

func (stream) SetReadDeadline(time.Time) error { return nil }

func head(size int) string {
	return "GET / HTTP/1.1\r\nHost: a.test\r\nX-Long: " + strings.Repeat("a", size) + "\r\n\r\n"
}

// A box has few places for requests with large heads, and gets them back; ordinary ones need none.
func TestLargeHeadsAreFew(t *testing.T) {
	g := &gate.Gate{}
	var kept []*input
	refused := 0
	for range 100 {
		in := newInput(stream{Reader: strings.NewReader(head(100 << 10))}, g)
		kept = append(kept, in)
		if _, err := in.request(); err != nil {
			refused++
		}
	}
	if refused == 0 || refused > 80 {
		t.Errorf("%d of 100 large heads were refused", refused)
	}
	if _, err := newInput(stream{Reader: strings.NewReader(head(1 << 10))}, g).request(); err != nil {
		t.Errorf("an ordinary head: %v", err)
	}
	for _, in := range kept {
		in.done()
		in.done()
	}
	if _, err := newInput(stream{Reader: strings.NewReader(head(100 << 10))}, g).request(); err != nil {
		t.Errorf("when the others are done: %v", err)
	}
}

// A server cannot make the node keep an answer's head without end.
func TestEndlessAnswer(t *testing.T) {
	const size = 8 << 20
	line := "X-A: " + strings.Repeat("a", 1000) + "\r\n"
	endless := strings.NewReader("HTTP/1.1 200 OK\r\n" + strings.Repeat(line, size/len(line)))
	_, err := readResponse(newInput(stream{Reader: endless}, &gate.Gate{}), &http.Request{Method: http.MethodGet})
	if read := size - endless.Len(); !errors.Is(err, errHead) || read > 1<<20 {
		t.Errorf("%d bytes were read: %v", read, err)
	}
}
