package guest

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// Version of the protocol; the minor rises with every addition.
const (
	Major = 1
	Minor = 0
)

// Options of a Server.
type Options struct {
	// Settings gives what ops start from; nil before the box stands.
	Settings func() *setup.Settings
	// Init says that this process is PID 1 of a box and reaps every child.
	Init bool
	// Files serves file streams on rw in this process. nil: a worker process is
	// started (this program again, as WorkerName), which needs Init.
	Files func(rw io.ReadWriteCloser)
	Build string
	// Rest, if not nil, is called on a goroutine of its own whenever nothing has ended for restAfter.
	Rest func()
}

// Limits of what a guest keeps: ops in all, ended ones among them, output of all.
// A running op costs 60 to 80 KiB, kernel memory included: maxOps of them and all the
// output must fit into the memory that the runtime gives to the guest (160 MiB).
const (
	keepOps      = 512
	maxOps       = 1536
	outputBudget = 24 << 20
)

// Server serves one box. Its ops outlive the connections.
type Server struct {
	opt       Options
	ops       *table[*op]
	files     *table[*fileOp]
	budget    *budget
	gate      *gate
	reaper    *reaper
	leaves    leaves
	sessions  sessions
	worker    worker
	looking   atomic.Int32 // at survivors
	oomScored bool
	bootID    string

	places atomic.Uint64

	mu   sync.Mutex
	conn *mux.Conn
	// current is the place of conn, in the order of connections.
	current uint64
	rest    *time.Timer // see Touch
}

// errReplaced ends a connection that a newer one has overtaken.
var errReplaced = errors.New("a newer connection has taken over")

// NewServer makes a server. It starts nothing.
func NewServer(opt Options) *Server {
	s := &Server{opt: opt, ops: newTable[*op](keepOps, maxOps), files: newTable[*fileOp](keepOps, maxOps)}
	s.gate = newGate()
	s.budget = &budget{left: outputBudget, evict: s.ops.evict}
	s.reaper = newReaper(opt.Init, s.orphaned)
	s.bootID = randomID()
	if b := readRegular("/proc/self/oom_score_adj", 16); len(b) > 0 && b[0] != '0' {
		s.oomScored = true
	}
	return s
}

// Prepare is told the agent's cgroup v1 `tasks` files and its cgroup2 directory (-1: none) as
// soon as they are known, once, before the box stands. They stay open from then on.
func (s *Server) Prepare(tasks []int, cgroup int) {
	s.reaper.prepare(tasks)
	if cgroup >= 0 {
		s.leaves.spare(cgroup)
	}
}

// Serve serves a control connection whose preamble was read, until it has ended and all of its requests have been served. The
// newest connection replaces the one before: its streams end, the ops go on.
func (s *Server) Serve(rw io.ReadWriteCloser) error {
	// Its place is taken before the hello is sent: whoever has read that and connects
	// again is the newer one, however late this goroutine goes on.
	place := s.places.Add(1)
	c, err := mux.NewConn(rw, mux.Config{
		Hello:  guestproto.Hello{Major: Major, Minor: Minor, Build: s.opt.Build, BootID: s.bootID},
		Accept: s.accept,
	})
	if err != nil {
		_ = c.Close()
		return err
	}
	s.mu.Lock()
	if place < s.current {
		s.mu.Unlock()
		_ = c.Close()
		return errReplaced
	}
	old := s.conn
	s.conn, s.current = c, place
	s.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	err = c.Serve()
	s.mu.Lock()
	if s.conn == c {
		s.conn = nil
	}
	s.mu.Unlock()
	// What came before the loss may have the guest at work still: until that has ended, it is in use.
	c.Wait()
	return err
}

// errNotBooted is the answer before the box stands.
var errNotBooted = userError("unavailable", "box", "it is not set up yet", "try again")

func (s *Server) settings() (*setup.Settings, *guestproto.WireError) {
	if set := s.opt.Settings(); set != nil {
		return set, nil
	}
	return nil, errNotBooted
}

// accept serves one stream.
func (s *Server) accept(st *mux.Stream, body []byte) {
	defer func() { // a fault here is this request's, not the box's end
		if p := recover(); p != nil {
			st.Reset(policyError("guest", "the request hit a fault in the guest"))
		}
	}()
	growStack(0)
	err := s.dispatch(st, body)
	var w *guestproto.WireError
	switch {
	case err == nil:
	case errors.As(err, &w):
		st.Reset(w)
	default: // the stream or the connection is gone
	}
	_ = st.Close()
}

func (s *Server) dispatch(st *mux.Stream, body []byte) error {
	switch k := st.Kind(); {
	case k == guestproto.KindExec:
		return s.exec(st, body)
	case k == guestproto.KindDial:
		return s.dial(st, body)
	case k.File():
		return s.file(st, body)
	}
	var r guestproto.OpRequest
	if err := guestproto.Unmarshal(body, &r); err != nil {
		return badRequest(err)
	}
	switch st.Kind() {
	case guestproto.KindAttach:
		return s.attach(st, &r)
	case guestproto.KindGet:
		return s.get(st, &r)
	case guestproto.KindList:
		return s.list(st)
	case guestproto.KindStdin:
		return s.writeStdin(st, &r)
	case guestproto.KindResize:
		return s.resize(st, &r)
	case guestproto.KindSignal:
		return s.signal(st, &r)
	case guestproto.KindCloseShell:
		return s.closeShell(st, &r)
	}
	return userError("unsupported", "request", "this guest does not know it", "make a new session from a newer template")
}

func badRequest(err error) *guestproto.WireError {
	return userError("invalid_argument", "request", err.Error(), "send a valid request")
}

// orphaned asks for a look at survivors; it never blocks the reaper. One goroutine
// looks, however fast orphans end: their number is the agent's choice.
func (s *Server) orphaned() {
	if s.looking.Swap(lookAgain) != lookNone {
		return
	}
	go func() {
		for again := true; again; again = !s.looking.CompareAndSwap(lookNow, lookNone) {
			time.Sleep(lookPause)
			s.looking.Store(lookNow)
			for _, o := range s.ops.all() {
				o.checkSurvivors()
			}
		}
		s.Touch()
	}()
}

// States of the look at survivors, and the pause before each.
const (
	lookNone  = 0
	lookNow   = 1
	lookAgain = 2
	lookPause = 5 * time.Millisecond
)

// Close ends the control connection and kills what runs. It is for guests
// inside another process; PID 1 just exits.
func (s *Server) Close() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
	s.worker.close()
	for _, o := range s.ops.all() {
		o.mu.Lock()
		busy := o.result == nil || o.survivors
		o.mu.Unlock()
		if busy {
			o.kill()
		}
		<-o.idle
		if busy {
			o.awaitEmpty()
			o.checkSurvivors()
		}
	}
}

func itoa(n int) string {
	if n < 0 {
		return "-" + itoa(-n)
	}
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(b[i:])
		}
	}
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

func randomID() string {
	const digits = "0123456789abcdef"
	var b [16]byte
	_, _ = unix.Getrandom(b[:], 0)
	for i := range b {
		b[i] = digits[b[i]&15]
	}
	return string(b[:])
}
