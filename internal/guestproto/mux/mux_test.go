package mux

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair connects a client to a server that serves streams with accept.
func pair(t *testing.T, accept func(*Stream, []byte)) (client, server *Conn) {
	t.Helper()
	a, b := net.Pipe()
	ch := make(chan *Conn, 1)
	go func() {
		s, err := NewConn(b, Config{Accept: accept})
		if err != nil {
			t.Error(err)
		}
		ch <- s
		_ = s.Serve()
	}()
	// A pipe has no buffer: read while the hello is written.
	c := newConn(a, Config{})
	done := make(chan struct{})
	go func() { _ = c.Serve(); close(done) }()
	if err := c.greet(); err != nil {
		t.Fatal(err)
	}
	server = <-ch
	<-c.Ready()
	t.Cleanup(func() { c.Close(); server.Close(); <-done })
	return c, server
}

func echo(s *Stream, body []byte) {
	_ = s.SendMessage(&guestproto.Reply{N: int64(len(body))}, false)
	_, _ = io.Copy(struct{ io.Writer }{s}, s)
	_ = s.CloseSend()
}

func TestEchoLargerThanWindow(t *testing.T) {
	c, _ := pair(t, echo)
	s, err := c.Open(guestproto.KindDial, []byte("hello"), false)
	if err != nil {
		t.Fatal(err)
	}
	var r guestproto.Reply
	if err := s.RecvMessage(&r); err != nil || r.N != 5 {
		t.Fatalf("reply %+v, %v", r, err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 5*Window/16)
	go func() {
		_, _ = s.Write(want)
		_ = s.CloseSend()
	}()
	got, err := io.ReadAll(s)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.streams); n != 0 {
		t.Errorf("%d streams left", n)
	}
}

func TestStalledStreamDoesNotStallOthers(t *testing.T) {
	c, _ := pair(t, echo)
	stalled, err := c.Open(guestproto.KindDial, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan struct{})
	go func() { // nobody reads this stream: the write must stop at the window
		defer close(wrote)
		_, _ = stalled.Write(make([]byte, 8*Window))
	}()
	for range 50 {
		s, err := c.Open(guestproto.KindDial, []byte("x"), true)
		if err != nil {
			t.Fatal(err)
		}
		var r guestproto.Reply
		if err := s.RecvMessage(&r); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != io.EOF {
			t.Fatal(err)
		}
	}
	select {
	case <-wrote:
		t.Fatal("eight windows went into a stream that nobody reads")
	default:
	}
	stalled.Close()
	<-wrote
}

func TestResetCarriesError(t *testing.T) {
	c, _ := pair(t, func(s *Stream, _ []byte) {
		s.Reset(&guestproto.WireError{Class: "user", Reason: "not_found", Message: "nothing here"})
	})
	s, err := c.Open(guestproto.KindGet, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	if e, ok := errors.AsType[*guestproto.WireError](err); !ok || e.Reason != "not_found" {
		t.Fatalf("got %v", err)
	}
}

func TestPing(t *testing.T) {
	c, _ := pair(t, echo)
	ch, err := c.Ping()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ch:
	case <-time.After(5 * time.Second):
		t.Fatal("no pong")
	}
}

func TestLostConnectionEndsStreams(t *testing.T) {
	c, server := pair(t, func(s *Stream, _ []byte) { _, _ = s.Recv() })
	s, err := c.Open(guestproto.KindDial, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	if _, err := s.Recv(); err == nil || err == io.EOF {
		t.Fatalf("got %v", err)
	}
	<-c.Done()
}

// frames builds a hostile guest's bytes: its hello, then raw frames.
func frames(list ...[]byte) []byte {
	b := frame(frameHello, false, 0, guestproto.Marshal(nil, &guestproto.Hello{Major: 1}))
	return append(b, bytes.Join(list, nil)...)
}

func frame(typ byte, end bool, id uint32, p []byte) []byte {
	b := make([]byte, headerSize, headerSize+len(p))
	putHeader(b, typ, end, id, len(p))
	return append(b, p...)
}

func TestHostileGuest(t *testing.T) {
	small := guestproto.Marshal(nil, &guestproto.Reply{N: 1})
	var flood [][]byte
	for range 20 {
		flood = append(flood, frame(frameData, false, 1, make([]byte, 32<<10)))
	}
	tests := map[string][]byte{
		"no hello":             frame(frameMsg, false, 1, small),
		"second hello":         frames(frame(frameHello, false, 0, nil)),
		"never opened":         frames(frame(frameMsg, false, 77, small)),
		"even stream":          frames(frame(frameMsg, false, 2, small)),
		"open":                 frames(frame(frameOpen, false, 3, nil)),
		"ping":                 frames(frame(framePing, false, 0, make([]byte, 8))),
		"unasked pong":         frames(frame(framePong, false, 0, make([]byte, 8))),
		"unknown type":         frames(frame(99, false, 0, nil)),
		"too long":             frames(frame(frameMsg, false, 1, make([]byte, MaxPayload+1))),
		"credit beyond window": frames(frame(frameCredit, false, 1, []byte{255, 255, 255, 255})),
		"zero credit":          frames(frame(frameCredit, false, 1, make([]byte, 4))),
		"over credit":          frames(flood...),
		"empty data":           frames(frame(frameData, false, 1, nil)),
		"after end":            frames(frame(frameMsg, true, 1, small), frame(frameMsg, true, 1, small)),
		"malformed reset":      frames(frame(frameReset, false, 1, []byte{7})),
		"truncated":            frames(frame(frameMsg, false, 1, small)[:10]),
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			c := newConn(&script{Reader: bytes.NewReader(in)}, Config{})
			if _, err := c.Open(guestproto.KindDial, nil, false); err != nil {
				t.Fatal(err)
			}
			err := c.Serve()
			if name == "truncated" {
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("got %v, want a protocol break", err)
			}
		})
	}
}

func TestFloodOnClosedStreamsIsBounded(t *testing.T) {
	var list [][]byte
	for range 1000 {
		list = append(list, frame(frameData, false, 1, make([]byte, 32<<10)))
	}
	c := newConn(&script{Reader: bytes.NewReader(frames(list...))}, Config{})
	s, err := c.Open(guestproto.KindDial, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := c.Serve(); !errors.Is(err, ErrProtocol) {
		t.Fatalf("got %v", err)
	}
}

// script is a peer that says what it has to say and reads nothing.
type script struct{ io.Reader }

func (*script) Write(p []byte) (int, error) { return len(p), nil }
func (*script) Close() error                { return nil }

func FuzzClient(f *testing.F) {
	f.Add(frames(frame(frameMsg, true, 1, nil)))
	f.Add(frames(frame(frameData, false, 1, []byte("x")), frame(frameReset, false, 1, nil)))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := newConn(&script{Reader: bytes.NewReader(in)}, Config{})
		s, err := c.Open(guestproto.KindDial, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Serve()
		for {
			if _, err := s.Recv(); err != nil {
				break
			}
		}
	})
}

func FuzzServer(f *testing.F) {
	open := guestproto.Marshal(nil, &openBody{guestproto.KindDial, []byte("x")})
	f.Add(frames(frame(frameOpen, false, 1, open), frame(frameData, true, 1, []byte("y"))))
	f.Fuzz(func(t *testing.T, in []byte) {
		c := newConn(&script{Reader: bytes.NewReader(in)}, Config{Accept: echo})
		_ = c.Serve()
	})
}
