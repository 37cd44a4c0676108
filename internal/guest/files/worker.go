// Package files serves the file half of the guest protocol inside a box. It
// runs in a process of its own ("dsec-files", see Run) in the agent's cgroups, so that what files
// cost (pages of a tmpfs, most of all) is the agent's, never PID 1's.
//
// Paths are resolved by the kernel in the box's own root; access is decided by
// the kernel too: every system call that takes a path runs on a thread with the file-system
// identity (fsuid, fsgid, groups) of the request's user. Content is streamed
// through small buffers under the protocol's flow control.
package files

import (
	"io"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// Worker serves file streams. All methods are safe for concurrent use.
type Worker struct {
	threads threads
	users   users

	mu     sync.Mutex
	closed bool
	ops    sync.WaitGroup
}

// New makes a worker with the identity of this process.
func New() *Worker {
	w := &Worker{}
	w.threads.init()
	return w
}

// Run is the worker process: it serves file streams on rw until the other side
// closes it, and returns when the operations that were running have cleaned up.
func Run(rw io.ReadWriteCloser) error {
	unix.Umask(0) // modes are the requests' own
	// Of the agent's processes only those with CAP_SYS_PTRACE may look into this one, and none has it.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	signal.Ignore(unix.SIGXFSZ) // a file over the size limit is an error, not the end
	raiseFileLimit()
	w := New()
	defer w.Close()
	conn, err := mux.NewConn(rw, mux.Config{Accept: w.Serve, Hello: guestproto.Hello{Major: 1}})
	if err != nil {
		return err
	}
	return conn.Serve()
}

func raiseFileLimit() {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil && r.Cur < r.Max {
		r.Cur = min(r.Max, 1<<16)
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &r) // fewer files at a time, then
	}
}

// Close waits for running operations and ends the worker's threads. Streams that come later are not served.
func (w *Worker) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.ops.Wait()
	w.threads.close()
}

// op is one request being served.
type op struct {
	w    *Worker
	s    *mux.Stream
	req  guestproto.FileRequest
	who  identity
	home string
	path string // req.Path, absolute

	owner *identity // whose the new files of a request on behalf of somebody are
	led   bool      // what is open was reached with that user's power: it stays whose it is
}

// Serve serves one stream to its end; it is a mux.Config's Accept.
func (w *Worker) Serve(s *mux.Stream, body []byte) {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		_ = s.Close()
		return
	}
	w.ops.Add(1)
	w.mu.Unlock()
	defer w.ops.Done()
	if err := w.serve(s, body); err != nil {
		s.Reset(wireError("file", err))
		return
	}
	_ = s.Close()
}

func (w *Worker) serve(s *mux.Stream, body []byte) error {
	o := &op{w: w, s: s}
	if err := guestproto.Unmarshal(body, &o.req); err != nil {
		return invalid("request", "malformed request", "send a valid request")
	}
	account, err := w.users.find(o.req.User)
	if err != nil {
		return err
	}
	o.who, o.home = account.identity, account.home
	if o.path, err = o.resolve(o.req.Path); err != nil {
		return err
	}
	if o.req.Behalf {
		o.onBehalf()
	}
	serve := o.handler(s.Kind())
	if serve == nil {
		return invalid("request", "not a file operation", "send a valid request")
	}
	return serve()
}

// handler gives what serves a kind. A switch, not a map: the start of every PID 1 would pay for that.
func (o *op) handler(k guestproto.Kind) func() error {
	switch k {
	case guestproto.KindFileStat:
		return o.stat
	case guestproto.KindFileList:
		return o.list
	case guestproto.KindFileRead:
		return o.read
	case guestproto.KindFileWrite:
		return o.write
	case guestproto.KindFileMkdir:
		return o.mkdir
	case guestproto.KindFileMove:
		return o.move
	case guestproto.KindFileRemove:
		return o.remove
	case guestproto.KindFileLink:
		return o.link
	case guestproto.KindFileChmod:
		return o.chmod
	case guestproto.KindFileWatch:
		return o.watch
	case guestproto.KindFileTarOut:
		return o.tarOut
	case guestproto.KindFileTarIn:
		return o.tarIn
	}
	return nil
}

// as runs fn as the op's user. Nothing that waits for the client may run in it:
// threads are few.
func (o *op) as(fn func() error) error { return o.w.threads.run(o.who, fn) }

// done answers a request that has no other result.
func (o *op) done(n int64) error { return o.s.SendMessage(&guestproto.Reply{N: n}, true) }

// gone tells whether nobody waits for the op any more.
func (o *op) gone() bool {
	select {
	case <-o.s.Gone():
		return true
	default:
		return false
	}
}
