package guest

import (
	"bytes"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// restAfter is how long nothing ends, no op and no connection, until an idle guest rests.
const restAfter = 2 * time.Second

// Touch starts the clock of idleness anew: something has ended. Options.Rest is called when it runs out.
func (s *Server) Touch() {
	if s.opt.Rest == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rest == nil {
		s.rest = time.AfterFunc(restAfter, s.opt.Rest)
	} else {
		s.rest.Reset(restAfter)
	}
}

// smallGuest need not give its free memory back: a collection touches more of it (0.3 MiB) than it frees, and so
// does a look at the runtime's own figures. The kernel is asked.
const smallGuest = 3 << 20

// Shrink gives the free memory of a guest that has grown back.
func Shrink() {
	var pages [3]int // of the program, resident, and of these in files
	for i, f := range bytes.Fields(readRegular("/proc/self/statm", 128)) {
		if i < len(pages) {
			pages[i], _ = strconv.Atoi(string(f))
		}
	}
	if (pages[1]-pages[2])*unix.Getpagesize() > smallGuest {
		debug.FreeOSMemory()
	}
}

// maxKept bounds what a guest leaves for its next life: on its way it is copied a few times, which for as much as a guest
// may keep of outputs takes 70 ms and three times its memory. One that has more stays awake.
const maxKept = 2 << 20

// Keep gives what the server has to know in its next life, and the descriptors that belong to it; ok is false while
// anything is going on that needs this one. Nothing changes by it. The program is the same on both sides and nobody else sees the
// bytes, so their form is no promise.
func (s *Server) Keep() (state []byte, fds []int, ok bool) {
	ops, files, quiet := s.atRest()
	if !quiet || s.budget.used() > maxKept {
		return nil, nil, false
	}
	e := &guestproto.Encoder{}
	e.String(1, s.bootID)
	e.Uint(2, s.places.Load())
	for _, o := range ops {
		e.Message(3, &keptOp{o})
		if len(e.Buf) > maxKept {
			return nil, nil, false
		}
	}
	for _, f := range files {
		e.Message(4, f)
		if len(e.Buf) > maxKept {
			return nil, nil, false
		}
	}
	s.ops.keepEvicted(e, 5)
	s.files.keepEvicted(e, 7)
	s.leaves.mu.Lock()
	defer s.leaves.mu.Unlock()
	e.Int(9, int64(s.leaves.next))
	for _, f := range s.leaves.free {
		e.Message(10, f)
		fds = append(fds, f.dir, f.events)
	}
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	for name, ses := range s.sessions.byName {
		e.Message(11, &keptSession{name, ses})
	}
	if len(e.Buf) > maxKept {
		return nil, nil, false
	}
	// What cannot be read again must not be found out afterwards.
	if _, err := NewServer(s.opt).Restore(e.Buf); err != nil {
		return nil, nil, false
	}
	return e.Buf, fds, true
}

// Restore takes over what Keep gave, before anything else is done with the server, and gives the descriptors again.
func (s *Server) Restore(state []byte) (fds []int, err error) {
	d := guestproto.NewDecoder(state)
	for d.Next() {
		switch d.Field() {
		case 1:
			s.bootID = d.String(guestproto.MaxName)
		case 2:
			s.places.Store(d.Uint())
		case 3:
			k := keptOp{s.endedOp()}
			d.Message(&k)
			k.id = k.info.OpID
			s.ops.restore(k.id, k.op)
		case 4:
			f := &fileOp{done: make(chan struct{})}
			close(f.done)
			d.Message(f)
			s.files.restore(f.id, f)
		case 5, 6:
			s.ops.restoreEvicted(int(d.Field()-5), d.Uint())
		case 7, 8:
			s.files.restoreEvicted(int(d.Field()-7), d.Uint())
		case 9:
			s.leaves.next = int(d.Int())
		case 10:
			f := &leaf{}
			d.Message(f)
			s.leaves.free = append(s.leaves.free, f)
			fds = append(fds, f.dir, f.events)
		case 11:
			k := keptSession{session: &session{}}
			d.Message(&k)
			s.budget.reserve(len(k.state))
			s.sessions.restore(k.name, k.session)
		}
	}
	return fds, d.Err()
}

// atRest gives all ops and file operations; quiet is false when there is anything that has to be running: a child, an op or
// a file operation that has not ended, somebody who waits for a result, a connection. No request may be at work: what begins
// meanwhile is not seen.
func (s *Server) atRest() (ops []*op, files []*fileOp, quiet bool) {
	if hasChildren() || s.looking.Load() != lookNone || !s.worker.mu.TryLock() { // the agent may hold a start up under that lock
		return nil, nil, false
	}
	working := s.worker.cur != nil
	s.worker.mu.Unlock()
	s.mu.Lock()
	connected := s.conn != nil
	s.mu.Unlock()
	if working || connected {
		return nil, nil, false
	}
	ops, files = s.ops.all(), s.files.all()
	for _, o := range ops {
		select {
		case <-o.idle:
		default:
			return nil, nil, false
		}
		if !o.settled() {
			return nil, nil, false
		}
	}
	for _, f := range files {
		if !f.settled() {
			return nil, nil, false
		}
	}
	return ops, files, true
}
