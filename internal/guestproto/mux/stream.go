package mux

import (
	"encoding/binary"
	"io"
	"os"
	"sync"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// Frame is what Recv gives. The payload of a data frame is valid until the next
// Recv; that of a message may be kept.
type Frame struct {
	Data    bool
	Payload []byte
}

// Stream is one request and its answers. One goroutine may receive and one may
// send at a time; Reset and Close may be called from anywhere. A stream that is
// not read to its end must be closed.
type Stream struct {
	c    *Conn
	id   uint32
	kind guestproto.Kind

	mu       sync.Mutex
	queue    []Frame
	recvLeft int // what the peer may still send
	taken    int // received and consumed, not yet given back as credit
	sendLeft int
	recvEnd  bool
	sendEnd  bool
	err      error
	last     []byte // data payload to recycle at the next Recv
	rest     []byte // of Read

	recvReady, sendReady chan struct{}
	gone                 chan struct{} // closed by fail
	finished             chan struct{} // closed by fail or when both directions have ended
	over                 bool
}

func newStream(c *Conn, id uint32, kind guestproto.Kind) *Stream {
	return &Stream{c: c, id: id, kind: kind, recvLeft: Window, sendLeft: Window,
		recvReady: make(chan struct{}, 1), sendReady: make(chan struct{}, 1),
		gone: make(chan struct{}), finished: make(chan struct{})}
}

// Kind is what the stream was opened for.
func (s *Stream) Kind() guestproto.Kind { return s.kind }

// Gone is closed when the stream was reset, by either side or by the loss of the connection.
func (s *Stream) Gone() <-chan struct{} { return s.gone }

// Finished is closed when both directions have ended, or with Gone.
func (s *Stream) Finished() <-chan struct{} { return s.finished }

// finish marks the end. The stream's lock is held.
func (s *Stream) finish() {
	if !s.over {
		s.over = true
		close(s.finished)
	}
}

// Conn is the stream's connection.
func (s *Stream) Conn() *Conn { return s.c }

func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// push queues what the peer sent.
func (s *Stream) push(f Frame, end bool) error {
	s.mu.Lock()
	if s.err != nil { // given up meanwhile
		s.mu.Unlock()
		return nil
	}
	empty := f.Data && len(f.Payload) == 0
	switch {
	case s.recvEnd:
		s.mu.Unlock()
		return broken("frame after the end of stream ", s.id)
	case empty && !end:
		s.mu.Unlock()
		return broken("empty data on stream ", s.id)
	}
	if !empty {
		s.recvLeft -= len(f.Payload) + frameCost
		if s.recvLeft < 0 {
			s.mu.Unlock()
			return broken("stream ", s.id, " is over its credit")
		}
		s.queue = append(s.queue, f)
	}
	s.recvEnd = end
	over := s.recvEnd && s.sendEnd
	if over {
		s.finish()
	}
	s.mu.Unlock()
	wake(s.recvReady)
	if over {
		s.c.forget(s, false)
	}
	return nil
}

func (s *Stream) credit(n uint32) error {
	s.mu.Lock()
	if n == 0 || uint64(n)+uint64(max(s.sendLeft, 0)) > Window {
		s.mu.Unlock()
		return broken("impossible credit on stream ", s.id)
	}
	s.sendLeft += int(n)
	s.mu.Unlock()
	wake(s.sendReady)
	return nil
}

func (s *Stream) fail(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
		close(s.gone)
		s.finish()
	}
	s.mu.Unlock()
	wake(s.recvReady)
	wake(s.sendReady)
}

// Recv gives the next frame: what came before the end is delivered first, then
// io.EOF at the peer's end, or the error that ended the stream (a *guestproto.WireError
// when the peer reset it).
func (s *Stream) Recv() (Frame, error) { return s.RecvUntil(nil) }

// RecvUntil is Recv that gives os.ErrDeadlineExceeded when cancel is closed first.
func (s *Stream) RecvUntil(cancel <-chan struct{}) (Frame, error) {
	for {
		s.mu.Lock()
		if s.last != nil {
			putBuf(s.last)
			s.last = nil
		}
		if len(s.queue) > 0 {
			f := s.queue[0]
			s.queue[0] = Frame{}
			s.queue = s.queue[1:]
			if len(s.queue) == 0 {
				s.queue = nil
			}
			if f.Data {
				s.last = f.Payload
			}
			s.taken += len(f.Payload) + frameCost
			var give int
			if s.taken >= Window/4 && !s.recvEnd && s.err == nil {
				give, s.taken = s.taken, 0
				s.recvLeft += give
			}
			s.mu.Unlock()
			if give > 0 {
				var b [4]byte
				binary.LittleEndian.PutUint32(b[:], uint32(give))
				_ = s.c.write(frameCredit, false, s.id, b[:]) // a lost connection shows at the next Recv
			}
			return f, nil
		}
		err, end := s.err, s.recvEnd
		s.mu.Unlock()
		if end {
			return Frame{}, io.EOF
		}
		if err != nil {
			return Frame{}, err
		}
		select {
		case <-s.recvReady:
		case <-cancel:
			return Frame{}, os.ErrDeadlineExceeded
		}
	}
}

// broken ends a client's connection: a guest that sends nonsense is not to be
// talked to. A server drops the stream only.
func (s *Stream) broken(err error) error {
	if s.c.client {
		s.c.Fail(err)
	} else {
		s.Reset(&guestproto.WireError{Class: "user", Reason: "invalid_argument", Object: "request", Message: err.Error(), Remedy: "send a valid request"})
	}
	return err
}

// Send sends one frame of at most MaxPayload bytes, waiting for credit; end
// closes this side's direction.
func (s *Stream) Send(f Frame, end bool) error { return s.SendUntil(f, end, nil) }

// SendUntil is Send that gives os.ErrDeadlineExceeded when cancel is closed
// before there was credit.
func (s *Stream) SendUntil(f Frame, end bool, cancel <-chan struct{}) error {
	if len(f.Payload) > MaxPayload {
		return guestproto.ErrTooLong
	}
	typ := byte(frameMsg)
	cost := len(f.Payload) + frameCost
	if f.Data {
		typ = frameData
		if len(f.Payload) == 0 {
			if !end {
				return nil
			}
			cost = 0
		}
	}
	for {
		s.mu.Lock()
		if s.err != nil {
			defer s.mu.Unlock()
			return s.err
		}
		if s.sendEnd {
			s.mu.Unlock()
			return ErrClosed
		}
		if s.sendLeft >= cost {
			s.sendLeft -= cost
			s.sendEnd = end
			over := end && s.recvEnd
			if over {
				s.finish()
			}
			s.mu.Unlock()
			if over {
				s.c.forget(s, false)
			}
			return s.c.write(typ, end, s.id, f.Payload)
		}
		s.mu.Unlock()
		select {
		case <-s.sendReady:
		case <-cancel:
			return os.ErrDeadlineExceeded
		}
	}
}

// CloseSend ends this side's direction.
func (s *Stream) CloseSend() error { return s.Send(Frame{Data: true}, true) }

// Reset ends both directions and tells the peer why (e may be nil). What the
// peer still sends is ignored, within bounds.
func (s *Stream) Reset(e *guestproto.WireError) {
	s.abort(ErrClosed, e)
}

// Abort is Reset with the error that this side's Recv and Send shall give.
func (s *Stream) Abort(err error) { s.abort(err, nil) }

func (s *Stream) abort(err error, e *guestproto.WireError) {
	s.fail(err)
	if !s.c.forget(s, true) {
		return
	}
	var p []byte
	if e != nil {
		p = guestproto.Marshal(nil, e)
	}
	_ = s.c.write(frameReset, false, s.id, p) // a lost connection needs no reset
}

// Close gives the stream up; it does nothing when both directions have ended.
func (s *Stream) Close() error {
	s.abort(ErrClosed, nil)
	return nil
}
