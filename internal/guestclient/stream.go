package guestclient

import (
	"context"
	"io"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// stream is a mux stream that ends with a context. It must be closed; its
// methods give *errdefs.Error, or io.EOF at the guest's end.
type stream struct {
	s    *mux.Stream
	stop func() bool
}

// openStream sends a request; end says that nothing follows it.
func openStream(ctx context.Context, conn *mux.Conn, kind guestproto.Kind, req guestproto.Message, end bool) (*stream, error) {
	if err := ctx.Err(); err != nil {
		return nil, asError(err)
	}
	var body []byte
	if req != nil {
		body = guestproto.Marshal(nil, req)
	}
	s, err := conn.Open(kind, body, end)
	if err != nil {
		return nil, asError(err)
	}
	return &stream{s, context.AfterFunc(ctx, func() { s.Abort(ctx.Err()) })}, nil
}

// recv receives one message into m.
func (s *stream) recv(m guestproto.Message) error {
	if err := s.s.RecvMessage(m); err != nil {
		if err == io.EOF {
			return err
		}
		return asError(err)
	}
	return nil
}

// answer receives the message that a request always has.
func (s *stream) answer(m guestproto.Message) error {
	err := s.recv(m)
	if err == io.EOF {
		return tampered("the guest ended a request without an answer")
	}
	return err
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.s.Read(p)
	if err != nil && err != io.EOF {
		err = asError(err)
	}
	return n, err
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.s.Write(p)
	return n, asError(err)
}

func (s *stream) Close() error {
	s.stop()
	return s.s.Close()
}

// call is a request with one answer.
func call(ctx context.Context, conn *mux.Conn, kind guestproto.Kind, req, answer guestproto.Message) error {
	s, err := openStream(ctx, conn, kind, req, true)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.answer(answer)
}
