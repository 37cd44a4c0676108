package mux

import "github.com/dsec-platform/dsec/internal/guestproto"

// RecvMessage receives one message into m.
func (s *Stream) RecvMessage(m guestproto.Message) error {
	f, err := s.Recv()
	if err != nil {
		return err
	}
	if f.Data {
		return s.broken(broken("data instead of a message on stream ", s.id))
	}
	if err := guestproto.Unmarshal(f.Payload, m); err != nil {
		return s.broken(broken("message on stream ", s.id, ": ", err))
	}
	return nil
}

// SendMessage sends m.
func (s *Stream) SendMessage(m guestproto.Message, end bool) error {
	return s.Send(Frame{Payload: guestproto.Marshal(nil, m)}, end)
}

// Read reads the peer's data frames; a message among them is a protocol break.
func (s *Stream) Read(p []byte) (int, error) { return s.ReadUntil(p, nil) }

// ReadUntil is Read that gives os.ErrDeadlineExceeded when cancel is closed first.
func (s *Stream) ReadUntil(p []byte, cancel <-chan struct{}) (int, error) {
	if len(s.rest) == 0 {
		f, err := s.RecvUntil(cancel)
		if err != nil {
			return 0, err
		}
		if !f.Data {
			return 0, s.broken(broken("message instead of data on stream ", s.id))
		}
		s.rest = f.Payload
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// dataChunk is what one data frame carries: several fit a window.
const dataChunk = 32 << 10

// Write sends p as data frames.
func (s *Stream) Write(p []byte) (int, error) { return s.WriteUntil(p, nil) }

// WriteUntil is Write that gives os.ErrDeadlineExceeded when cancel is closed first.
func (s *Stream) WriteUntil(p []byte, cancel <-chan struct{}) (int, error) {
	n := 0
	for n < len(p) {
		k := min(len(p)-n, dataChunk)
		if err := s.SendUntil(Frame{Data: true, Payload: p[n : n+k]}, false, cancel); err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}
