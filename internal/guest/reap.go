package guest

import (
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/spawn"
)

// exit is how a process ended and what it used.
type exit struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

// child is a started process. ended receives once.
type child struct {
	pid   atomic.Int32
	pidfd int
	ended chan exit

	mu   sync.Mutex
	gone bool // reaped: the pid may be somebody else's
}

// signal sends to the process group of a child that has not been reaped.
func (c *child) signal(sig unix.Signal) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	return unix.Kill(-int(c.pid.Load()), sig) == nil
}

// reaper starts children and waits for them. As PID 1 (all) it is the only
// waiter of the process and reaps orphans too; otherwise it waits for its own
// children only, and leaves those of its host process alone.
type reaper struct {
	all bool
	// orphan is called after an orphan was reaped.
	orphan func()

	launcher atomic.Pointer[spawn.Launcher] // nil: it could not be started

	mu       sync.Mutex
	children map[*child]struct{} // few: a scan beats keeping pids of half-started ones
	idle     *sync.Cond
	running  bool
	wake     bool
}

func newReaper(all bool, orphan func()) *reaper {
	r := &reaper{all: all, orphan: orphan, children: map[*child]struct{}{}}
	r.idle = sync.NewCond(&r.mu)
	return r
}

// start starts a process. c must be fresh; c.pid is set before its ended can fire.
func (r *reaper) start(s *spawn.Spec, c *child) error {
	c.ended = make(chan exit, 1)
	s.Pid = &c.pid
	r.mu.Lock()
	r.children[c] = struct{}{}
	if r.all && !r.running {
		r.running = true
		go r.loop()
	}
	r.mu.Unlock()
	var err error
	if l := r.launcher.Load(); l != nil {
		c.pidfd, err = l.Start(s)
	} else {
		c.pidfd, err = spawn.Start(s)
	}
	if c.pid.Load() == 0 { // no child existed
		r.mu.Lock()
		delete(r.children, c)
		r.mu.Unlock()
		return err
	}
	if r.all {
		r.mu.Lock()
		r.wake = true
		r.idle.Signal()
		r.mu.Unlock()
	} else {
		go r.waitOne(c)
	}
	return err
}

// prepare starts the launcher. It joins the agent's v1 groups, where there are any, beside the boot, so that the first op
// does not wait for it.
func (r *reaper) prepare(tasks []int) {
	if !r.all {
		return
	}
	if l, err := spawn.NewLauncher(tasks, childBounding()); err == nil { // else every start does by itself what the launcher has done
		r.launcher.Store(l)
	}
}

func (r *reaper) waitOne(c *child) {
	e := exit{}
	for {
		// Peek first: the pid must not be free while a signal to it is under way.
		err := waitid(unix.P_PID, int(c.pid.Load()), nil, 0)
		if err == unix.EINTR {
			continue
		}
		r.reap(c, int(c.pid.Load()), &e)
		return
	}
}

// loop waits for whatever ends. It blocks in the kernel while there is any
// child, and on a condition otherwise. It begins with the first child and not a little later: orphans that nobody
// waits for are zombies, and a program that forks twice meets a small pid_limit by them within milliseconds.
func (r *reaper) loop() {
	var info [128]byte
	for {
		switch pid, err := waitAny(&info); err {
		case nil:
			c := r.find(int32(pid))
			var e exit
			switch {
			case r.reap(c, pid, &e):
				runtime.Gosched() // its op goes on first
			case r.orphan != nil:
				r.orphan()
			}
		case unix.EINTR:
		default: // ECHILD
			r.mu.Lock()
			for !r.wake {
				r.idle.Wait()
			}
			r.wake = false
			r.mu.Unlock()
		}
	}
}

// find gives the child of a pid, also while its start has not returned yet.
func (r *reaper) find(pid int32) *child {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.children {
		if c.pid.Load() == pid {
			return c
		}
	}
	return nil
}

// reap takes the zombie and tells its child, if it is one.
func (r *reaper) reap(c *child, pid int, e *exit) bool {
	if c != nil {
		c.mu.Lock()
		c.gone = true
		defer c.mu.Unlock()
	}
	for {
		_, err := unix.Wait4(pid, &e.status, unix.WNOHANG, &e.usage)
		if err != unix.EINTR {
			break
		}
	}
	if c == nil {
		return false
	}
	r.mu.Lock()
	delete(r.children, c)
	r.mu.Unlock()
	c.ended <- *e
	return true
}

// hasChildren tells whether any process descends from this one; for PID 1, whether any other lives in the box.
func hasChildren() bool {
	for {
		if err := waitid(unix.P_ALL, 0, nil, unix.WNOHANG); err != unix.EINTR {
			return err != unix.ECHILD
		}
	}
}

// waitAny waits for the end of any child without reaping it.
func waitAny(info *[128]byte) (pid int, err error) {
	at := func() int { return int(int32(binary.NativeEndian.Uint32(info[16:]))) }
	if err = waitid(unix.P_ALL, 0, info, unix.WNOHANG); err == nil && at() == 0 {
		err = spawn.WaitAny(info)
	}
	return at(), err
}

// waitid looks for the end of a child without reaping it.
func waitid(which, id int, info *[128]byte, options int) error {
	_, _, e := unix.Syscall6(unix.SYS_WAITID, uintptr(which), uintptr(id), uintptr(unsafe.Pointer(info)), uintptr(options)|unix.WEXITED|unix.WNOWAIT, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
