package guest

import (
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"time"
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

// reaper starts children and waits for them. As PID 1 (all) it reaps orphans too; otherwise it waits for its own
// children only, and leaves those of its host process alone.
type reaper struct {
	all bool
	// orphan is called after an orphan was reaped.
	orphan func()

	launcher atomic.Pointer[spawn.Launcher] // in the agent's v1 groups; nil: there are none

	reaping sync.Mutex // from the look at a dead process until it is reaped: its pid must not be another's meanwhile

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
	r.mu.Unlock()
	var pidfd int
	var err error
	if l := r.launcher.Load(); l != nil && len(s.Tasks) > 0 {
		pidfd, err = l.Start(s)
	} else {
		pidfd, err = spawn.Start(s)
	}
	if c.pid.Load() == 0 { // no child existed
		r.mu.Lock()
		delete(r.children, c)
		r.mu.Unlock()
		return err
	}
	go r.watch(c, pidfd)
	return err
}

// prepare starts the launcher. It joins the groups beside the boot, so that the
// first op does not wait for it.
func (r *reaper) prepare(tasks []int) {
	if !r.all || len(tasks) == 0 {
		return
	}
	if l, err := spawn.NewLauncher(tasks, boundingOf()); err == nil { // else every start joins by itself
		r.launcher.Store(l)
	}
}

// orphanPatience is how long the orphans of a command may stay zombies while it runs: a short one shall not
// cost a thread that waits for them.
const orphanPatience = 10 * time.Millisecond

// watch reaps a child when it has ended.
func (r *reaper) watch(c *child, pidfd int) {
	if !r.all {
		awaitEnd(int(c.pid.Load()), pidfd)
		r.reap(c, int(c.pid.Load()))
		return
	}
	late := time.AfterFunc(orphanPatience, r.await)
	awaitEnd(int(c.pid.Load()), pidfd)
	if late.Stop() && r.collect() {
		r.await()
	}
}

// awaitEnd returns when a child has ended, and takes over its pidfd (-1: none). Where that can be
// polled it needs no thread. The child is not reaped: a signal to it may be under way.
func awaitEnd(pid, pidfd int) {
	if pidfd >= 0 {
		_ = unix.SetNonblock(pidfd, true) // else os would not poll it
		f := os.NewFile(uintptr(pidfd), "child")
		defer f.Close()
		conn, err := f.SyscallConn()
		if err == nil && conn.Read(func(fd uintptr) bool {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			return n > 0 && err == nil
		}) == nil {
			return
		}
	}
	for waitid(unix.P_PID, pid, 0, nil) == unix.EINTR {
	}
}

// await makes sure that the loop waits for whatever ends.
func (r *reaper) await() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running {
		r.running = true
		go r.loop()
	}
	r.wake = true
	r.idle.Signal()
}

// loop blocks in the kernel while there is any child, and on a condition otherwise.
func (r *reaper) loop() {
	for {
		switch waitid(unix.P_ALL, 0, 0, nil) {
		case nil, unix.EINTR:
			r.collect()
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

// collect reaps whatever has ended, and tells whether there are others.
func (r *reaper) collect() (others bool) {
	r.reaping.Lock()
	defer r.reaping.Unlock()
	var info [128]byte
	for {
		err := waitid(unix.P_ALL, 0, unix.WNOHANG, &info)
		if err == unix.EINTR {
			continue
		}
		pid := int(int32(binary.NativeEndian.Uint32(info[16:])))
		if err != nil || pid == 0 {
			return err == nil
		}
		if c := r.find(int32(pid)); !r.reap(c, pid) && r.orphan != nil {
			r.orphan()
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
func (r *reaper) reap(c *child, pid int) bool {
	var e exit
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
	c.ended <- e
	return true
}

// waitid waits for the end of a child without reaping it.
func waitid(which, id, flags int, info *[128]byte) error {
	_, _, e := unix.Syscall6(unix.SYS_WAITID, uintptr(which), uintptr(id), uintptr(unsafe.Pointer(info)), uintptr(unix.WEXITED|unix.WNOWAIT|flags), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
