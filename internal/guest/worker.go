package guest

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/spawn"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// WorkerName is argv[0] of a file worker, WorkerFD the descriptor of its connection.
const (
	WorkerName = "dsec-files"
	WorkerFD   = 3
)

// workerIdle is how long a worker without work stays.
const workerIdle = 5 * time.Second

// worker is the process that does file operations, as box root in the agent's
// cgroups: what files cost is the agent's. It is started for the first operation.
type worker struct {
	mu     sync.Mutex
	cur    *workerRun
	active int
	timer  *time.Timer
}

// workerRun is one life of the worker.
type workerRun struct {
	conn   *mux.Conn
	child  *child // nil: in this process
	leaf   *leaf
	before events
	gone   chan struct{} // closed when it has ended; cause is valid then
	cause  *guestproto.WireError
}

// use gives the worker's connection, starting it if needed; release when done.
func (s *Server) useWorker() (run *workerRun, release func(), err error) {
	w := &s.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cur != nil && w.cur.conn.Err() != nil {
		w.cur = nil
	}
	if w.cur == nil {
		if w.cur, err = s.startWorker(); err != nil {
			return nil, nil, err
		}
		w.active = 0
	}
	w.active++
	if w.timer != nil {
		w.timer.Stop()
	}
	run = w.cur
	return run, func() { w.release(run) }, nil
}

func (w *worker) release(run *workerRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cur != run {
		return
	}
	if w.active--; w.active > 0 {
		return
	}
	w.timer = time.AfterFunc(workerIdle, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.cur == run && w.active == 0 {
			w.cur = nil
			_ = run.conn.Close() // the worker ends when its connection does
		}
	})
}

func (w *worker) close() {
	w.mu.Lock()
	run := w.cur
	w.cur = nil
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	if run != nil {
		_ = run.conn.Close()
		<-run.gone
	}
}

func (s *Server) startWorker() (*workerRun, error) {
	set, werr := s.settings()
	if werr != nil {
		return nil, werr
	}
	if s.opt.Files == nil && !s.opt.Init {
		return nil, userError("unsupported", "files", "this box has no file worker", "use another runtime")
	}
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, policyError("file worker", err.Error())
	}
	_ = unix.SetNonblock(p[0], true)
	ours := os.NewFile(uintptr(p[0]), "worker")
	run := &workerRun{gone: make(chan struct{}), before: readEvents(set)}
	if s.opt.Files != nil {
		_ = unix.SetNonblock(p[1], true)
		theirs := os.NewFile(uintptr(p[1]), "worker")
		go func() {
			s.opt.Files(theirs)
			_ = theirs.Close()
			run.cause = policyError("file worker", "it ended")
			close(run.gone)
		}()
	} else if err := s.spawnWorker(run, p[1]); err != nil {
		_ = ours.Close()
		return nil, err
	}
	run.conn, err = mux.NewConn(ours, mux.Config{Hello: guestproto.Hello{Major: Major, Minor: Minor}})
	if err != nil {
		_ = run.conn.Close()
	}
	go func() { _ = run.conn.Serve() }()
	return run, nil
}

func (s *Server) spawnWorker(run *workerRun, fd int) error {
	defer unix.Close(fd)
	set, werr := s.settings()
	if werr != nil {
		return werr
	}
	spec := &spawn.Spec{
		Paths: []string{"/proc/self/exe"}, Argv: []string{WorkerName}, Env: []string{"GOMAXPROCS=2", "GOGC=50"},
		Dir: "/", NoNew: true, Tasks: set.AgentTasks, ResetOOMScore: s.oomScored,
		Cred: &spawn.Cred{Groups: []uint32{0}}, Bounding: childBounding(),
		// Until it has made itself undumpable the box's root may write to its memory:
		// it must not be a way around the filter.
		Seccomp: set.Seccomp,
		Rlimits: []spawn.Rlimit{{Resource: unix.RLIMIT_CORE, Max: 0}},
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return policyError("file worker", err.Error())
	}
	defer unix.Close(null)
	spec.Files = []spawn.File{{From: null, To: 0}, {From: null, To: 1}, {From: null, To: 2}, {From: fd, To: WorkerFD}}
	if set.AgentCgroup >= 0 {
		if run.leaf = s.leaves.get(set.AgentCgroup); run.leaf != nil {
			spec.Cgroup = run.leaf.dir
		}
	}
	run.child = &child{}
	if err := s.reaper.start(spec, run.child); err != nil {
		go func() {
			if run.child.pid.Load() != 0 { // it is dying, and still in the leaf
				<-run.child.ended
			}
			if run.leaf != nil {
				s.leaves.put(set.AgentCgroup, run.leaf)
			}
			s.Touch()
		}()
		return startError(err, &launch{program: WorkerName})
	}
	go func() {
		e := <-run.child.ended
		closeFD(run.child.pidfd)
		run.cause = policyError("file worker", "it was ended from inside the box")
		if readEvents(set).oom > run.before.oom {
			run.cause = limitError("out_of_memory", "box", "the file operation ran out of the box's memory", "free memory in the box or raise mem_limit")
		} else if e.status.Exited() {
			run.cause = policyError("file worker", "it ended with status "+itoa(e.status.ExitStatus()))
		}
		if run.leaf != nil {
			s.leaves.put(set.AgentCgroup, run.leaf)
		}
		close(run.gone)
		s.Touch()
	}()
	return nil
}

// lost says why a stream of the worker broke off.
func (r *workerRun) lost() error {
	_ = r.conn.Close()
	select {
	case <-r.gone:
		return r.cause
	case <-time.After(2 * time.Second):
		if r.child != nil {
			r.child.signal(unix.SIGKILL)
		}
		return policyError("file worker", "it broke the protocol")
	}
}
