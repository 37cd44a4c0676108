package spawn

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Launcher starts processes from a thread that lives in the agent's cgroup v1
// groups, if there are any, and has the agent's bounding set and filter of system calls: its children are born so. Joining three groups one by one
// costs more than the start itself, and waits for every other change of cgroups on the machine.
//
// The thread is not the Go runtime's: the agent's CPU limit throttles it, and a
// throttled thread must not hold up the guest's scheduler. It counts as one
// process in the agent's v1 pids group.
type Launcher struct {
	thread   *launcher
	bounding uint64
	turn     chan struct{}
	since    atomic.Int64 // when the start at work began, Unix ns; 0: none is

	filter []byte // the thread's, as its children's specs give it; nil: none
}

// launcher is what the thread and its users share; the assembly knows its layout.
type launcher struct {
	state  uint32 // starting and at work: 1; waiting: 2; could not start: 3
	_      uint32
	init   *call
	ninit  uintptr
	args   *cloneArgs
	prog   *call
	n      uintptr
	failed *uint32
	result uintptr
	key    key
}

const (
	futexWait = 128 // FUTEX_WAIT_PRIVATE
	futexWake = 129

	launcherBusy = 1
	launcherDone = 2
	threadFlags  = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000 // VM FS FILES SIGHAND THREAD SYSVSEM
)

func startThread(flags uintptr, l *launcher) (r uintptr)

// NewLauncher starts the thread, which moves itself into the groups of the given
// `tasks` files and drops all capabilities but bounding (0: none) from its bounding set while the caller goes on; the
// first Start waits for that. The thread lives as long as the process.
func NewLauncher(tasks []int, bounding uint64) (*Launcher, error) {
	calls := make([]call, 0, len(tasks)+int(lastCap())+1)
	for _, fd := range tasks {
		calls = append(calls, call{nr: unix.SYS_WRITE, args: [6]uintptr{uintptr(fd), uintptr(unsafe.Pointer(&zero[0])), 1}})
	}
	for c := range dropped(bounding) {
		calls = append(calls, call{nr: unix.SYS_PRCTL, args: [6]uintptr{unix.PR_CAPBSET_DROP, c}})
	}
	t := &launcher{state: launcherBusy, ninit: uintptr(len(calls))}
	if len(calls) > 0 {
		t.init = &calls[0]
	}
	l := &Launcher{thread: t, bounding: bounding, turn: make(chan struct{}, 1)}
	if c := (call{result: startMasked(t)}); c.errno() != 0 {
		return nil, c.errno()
	}
	kept.Lock()
	kept.launchers = append(kept.launchers, t) // the thread uses it for ever
	kept.Unlock()
	return l, nil
}

// startMasked starts the thread with all signals blocked. Nothing moves the goroutine to another
// thread meanwhile: no signal preempts it and no stack is split. LockOSThread would do that,
// too, but makes the runtime keep one more thread for good.
//
//go:nosplit
//go:norace
func startMasked(t *launcher) uintptr {
	var all, old uint64
	all = ^uint64(0)
	sigmask(&all, &old)
	r := startThread(threadFlags, t)
	sigmask(&old, nil)
	return r
}

// kept holds what threads use for the collector's sake.
var kept struct {
	sync.Mutex
	launchers []*launcher
}

// usualStart is how long a start takes at most, nearly always.
const usualStart = 500 * time.Microsecond

// wait waits until the thread is neither starting nor at work. For usualStart the scheduler hears nothing of it, which
// would wake, or make, another thread to look for work that a guest rarely has meanwhile. All of PID 1 stands still for
// that long at most, even where the agent holds a start up.
func (t *launcher) wait() uint32 {
	soon := unix.NsecToTimespec(int64(usualStart))
	if atomic.LoadUint32(&t.state) == launcherBusy {
		_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&t.state)), futexWait, launcherBusy, uintptr(unsafe.Pointer(&soon)), 0, 0)
	}
	for {
		s := atomic.LoadUint32(&t.state)
		if s != launcherBusy {
			return s
		}
		t.waitLong()
	}
}

// waitLong gives the processor away at once.
//
//go:nosplit
//go:norace
func (t *launcher) waitLong() {
	entersyscallblock()
	_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&t.state)), futexWait, launcherBusy, 0, 0, 0)
	exitsyscall()
}

// patience is how long a start may take before the others go around the thread: a
// child that the agent stops before it has executed anything holds it up. A long line is
// no reason: a thousand starts that go around it at once make as many threads.
const patience = 20 * time.Millisecond

// Start is like the function Start, which it uses when the thread is held up or has another bounding set. s.Tasks must be
// the launcher's.
func (l *Launcher) Start(s *Spec) (pidfd int, err error) {
	if s.Bounding != l.bounding || !l.take() {
		return Start(s)
	}
	l.since.Store(time.Now().UnixNano())
	defer func() {
		l.since.Store(0)
		<-l.turn
	}()
	// One that could not join, or not be confined, has ended: every start does it by itself then.
	if l.thread.wait() != launcherDone || !l.confine(s) {
		return Start(s)
	}
	return start(s, l)
}

// take waits for the thread; false means that it is held up.
func (l *Launcher) take() bool {
	select {
	case l.turn <- struct{}{}:
		return true
	default:
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	for {
		select {
		case l.turn <- struct{}{}:
			return true
		case <-t.C:
			if since := l.since.Load(); since != 0 && time.Since(time.Unix(0, since)) >= patience {
				return false
			}
			t.Reset(patience)
		}
	}
}

func (l *Launcher) fork(args *cloneArgs, calls []call, failed *uint32) (int, syscall.Errno) {
	t := l.thread
	t.args, t.prog, t.n, t.failed = args, &calls[0], uintptr(len(calls)), failed
	t.resume()
	c := call{result: t.result}
	t.args, t.prog, t.failed = nil, nil, nil
	return int(c.result), c.errno()
}

// work makes the thread itself do the calls. It ends when one fails.
func (l *Launcher) work(calls []call) bool {
	t := l.thread
	t.init, t.ninit = &calls[0], uintptr(len(calls))
	done := t.resume() == launcherDone
	t.init = nil
	return done
}

// resume lets the thread do what it has been given, and waits for it.
func (t *launcher) resume() uint32 {
	atomic.StoreUint32(&t.state, launcherBusy)
	_, _, _ = syscall.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&t.state)), futexWake, 1, 0, 0, 0)
	return t.wait()
}
