package guest

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// stdin feeds a command. What was accepted counts towards the offset, so that a
// retry after a lost connection does not repeat bytes.
type stdin struct {
	mu     sync.Mutex
	file   *os.File // the write end, or a terminal
	tty    bool
	queue  []byte
	taken  int64
	eof    bool
	closed bool
	// state is closed and replaced when queue, eof or closed change.
	state chan struct{}
}

// maxQueue bounds what waits for a command that does not read.
const maxQueue = 64 << 10

func newStdin(f *os.File, tty bool) *stdin {
	return &stdin{file: f, tty: tty, state: make(chan struct{})}
}

func (s *stdin) changed() {
	close(s.state)
	s.state = make(chan struct{})
}

// give feeds data that is known whole, then closes the input.
func (s *stdin) give(data []byte) {
	s.mu.Lock()
	s.queue, s.taken, s.eof = data, int64(len(data)), true
	s.mu.Unlock()
	go s.run()
}

// run writes the queue to the command until the input's end.
func (s *stdin) run() {
	for {
		s.mu.Lock()
		data, eof, closed, state := s.queue, s.eof, s.closed, s.state
		s.mu.Unlock()
		if closed {
			return
		}
		if len(data) == 0 {
			switch {
			case !eof:
				<-state
			case s.tty:
				s.endTTY()
			default:
				s.close()
				return
			}
			continue
		}
		n, err := s.file.Write(data[:min(len(data), maxQueue)])
		s.mu.Lock()
		if s.closed { // meanwhile: the command has ended, and what was queued is gone
			s.mu.Unlock()
			return
		}
		s.queue = s.queue[n:]
		if len(s.queue) == 0 {
			s.queue = nil
		}
		s.changed()
		s.mu.Unlock()
		if err != nil { // nobody reads any more
			s.close()
			return
		}
	}
}

// endTTY sends Ctrl-D; a terminal goes on after it.
func (s *stdin) endTTY() {
	_, _ = s.file.Write([]byte{4})
	s.mu.Lock()
	s.eof = false
	s.mu.Unlock()
}

func (s *stdin) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed, s.queue = true, nil
	s.changed()
	if !s.tty {
		_ = s.file.Close()
	}
}

// write accepts data at offset, waiting while the queue is full or until gone.
// It gives the next offset in every case.
func (s *stdin) write(offset int64, data []byte, eof bool, gone <-chan struct{}) (int64, *guestproto.WireError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset > s.taken || offset < 0 {
		return s.taken, userError("conflict", "stdin", "the offset is beyond what was taken", "continue at the offset that the last answer gave")
	}
	if skip := s.taken - offset; skip >= int64(len(data)) {
		data = nil
	} else {
		data = data[skip:]
	}
	for len(data) > 0 {
		switch room := maxQueue - len(s.queue); {
		case s.closed || s.eof:
			return s.taken, userError("conflict", "stdin", "it is closed: the command has ended, closed it, or it was closed by a request", "send no more input")
		case room > 0:
			n := min(room, len(data))
			s.queue = append(s.queue, data[:n]...)
			data = data[n:]
			s.taken += int64(n)
			s.changed()
		default:
			state := s.state
			s.mu.Unlock()
			select {
			case <-state:
			case <-gone:
				s.mu.Lock()
				return s.taken, nil
			}
			s.mu.Lock()
		}
	}
	if eof && !s.eof {
		s.eof = true
		s.changed()
	}
	return s.taken, nil
}

// inputFor makes the descriptor that the command reads, and its feeder (nil: none).
func inputFor(mode guestproto.StdinMode, data []byte, owner int) (theirs int, in *stdin, err error) {
	if mode == guestproto.StdinNone || (mode == guestproto.StdinData && len(data) == 0) {
		theirs, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		return theirs, nil, err
	}
	theirs, w, err := pipe(true, owner)
	if err != nil {
		return -1, nil, err
	}
	return theirs, newStdin(os.NewFile(uintptr(w), "pipe"), false), nil
}

// pipe makes a pipe of which the guest's end does not block. write tells that the
// guest writes. The command's end belongs to its user: it may open /dev/stdout.
func pipe(write bool, owner int) (theirs, ours int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	ours, theirs = p[0], p[1]
	if write {
		ours, theirs = p[1], p[0]
	}
	if owner > 0 {
		_ = unix.Fchown(theirs, owner, -1) // else /dev/stdout cannot be opened by name; output works all the same
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		_ = unix.Close(ours)
		_ = unix.Close(theirs)
		return -1, -1, err
	}
	return theirs, ours, nil
}
