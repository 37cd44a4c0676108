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
//
// As PID 1 a child is seen to end by its pidfd, and whoever sees an end collects all that is dead. If others are left
// then, or a command runs for long, the loop waits for them in the kernel until there is no child. So whatever is alive
// is waited for by the loop, or descends from a child whose watch comes.
type reaper struct {
	all bool
	// orphan is called after an orphan was reaped, under reaping: it must not block, nor use the reaper.
	orphan func()

	launcher atomic.Pointer[spawn.Launcher] // in the agent's v1 groups; nil: there are none

	reaping sync.Mutex // from the look at a dead process until it is reaped: its pid must not be another's meanwhile

	mu       sync.Mutex
	children map[*child]struct{} // few: a scan beats keeping pids of half-started ones
	idle     *sync.Cond          // of the loop, which found no child
	running  bool                // the loop has been started
	wake     bool                // there may be one again
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

// prepare starts the launcher where there are v1 groups; on v2 a child is cloned into its group and drops its
// capabilities itself. It joins the groups beside the boot, so that the first op does not wait for it.
func (r *reaper) prepare(tasks []int) {
	if !r.all || len(tasks) == 0 {
		return
	}
	if l, err := spawn.NewLauncher(tasks, childBounding()); err == nil { // else every start joins by itself
		r.launcher.Store(l)
	}
}

// orphanPatience is how long a command runs before a thread waits for orphans too. Until then, or until the command ends,
// those that die are zombies, which count as processes of the box.
const orphanPatience = 10 * time.Millisecond

// watch sees to it that a child is reaped when it has ended, and takes over its pidfd (-1: none).
func (r *reaper) watch(c *child, pidfd int) {
	if !r.all {
		closeFD(pidfd)
		pid := int(c.pid.Load())
		for waitid(unix.P_PID, pid, 0, nil) == unix.EINTR { // a peek: a signal to it may be under way
		}
		r.reap(c, pid)
		return
	}
	late := time.AfterFunc(orphanPatience, r.wakeLoop)
	polled := awaitEnd(pidfd)
	if late.Stop() && (!polled || r.collect()) {
		r.wakeLoop()
	}
}

// awaitEnd returns when a process has ended, and closes its pidfd. It parks a goroutine and no thread. false: it cannot tell.
func awaitEnd(pidfd int) bool {
	if pidfd < 0 {
		return false
	}
	_ = unix.SetNonblock(pidfd, true) // else os would not poll it
	f := os.NewFile(uintptr(pidfd), "child")
	defer f.Close()
	conn, err := f.SyscallConn()
	return err == nil && conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 && err == nil
	}) == nil
}

// wakeLoop makes sure that the loop waits for whatever ends.
func (r *reaper) wakeLoop() {
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

// reap takes the zombie and tells its child; false: it was nobody's.
func (r *reaper) reap(c *child, pid int) bool {
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	var e exit
	got, err := unix.Wait4(pid, &e.status, unix.WNOHANG, &e.usage)
	for err == unix.EINTR {
		got, err = unix.Wait4(pid, &e.status, unix.WNOHANG, &e.usage)
	}
	if c == nil || got != pid {
		return c != nil
	}
	c.gone = true
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
