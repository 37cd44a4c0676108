package spawner

import (
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is one system call of the child; clone_amd64.s knows the offsets.
type call struct {
	nr, a, b, c uintptr
}

// cloneArgs is the kernel's clone_args.
type cloneArgs struct {
	flags, pidFD, childTID, _, exitSignal uint64
	_, _, _, _, _                         uint64 // stack, its size, tls, pids to choose and their number
	cgroup                                uint64
}

func cloneRun(args *cloneArgs, size uintptr, prog *call, n uintptr) (r uintptr)

// child is a clone that has not executed the guest yet. It runs on this
// process's memory: nothing is copied, and the fork costs the same whatever the
// size of the forker. What it points to must stay until done.
type child struct {
	args  cloneArgs
	calls [16]call
	n     int
	pidfd int32
	busy  atomic.Uint32 // the kernel clears it when the child has left this memory
	exe   [32]byte
	argv  [2]*byte
	env   [len(guestEnv) + 1]*byte
	name  [16]byte
	zero  [1]byte
	byte  [1]byte
}

// guestEnv are the run-time settings of PID 1: an idle guest stays small, and one
// under load within its cgroup. Set while the guest runs, each would stop its
// world: 0.15 ms of every create.
var guestEnv = [...]string{"GOGC=25\x00", "GOMEMLIMIT=44MiB\x00", "GOMAXPROCS=1\x00"}

const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWNET

func (c *child) add(nr int, args ...uintptr) {
	k := &c.calls[c.n]
	c.n++
	k.nr = uintptr(nr)
	for i, p := range []*uintptr{&k.a, &k.b, &k.c} {
		if i < len(args) {
			*p = args[i]
		}
	}
}

// compile writes down what the child does between clone and exec. Descriptors
// 0, 1 and 2 are /dev/null here already; all others are close-on-exec.
func (c *child) compile(r *Request, gate [2]int) {
	c.zero[0] = '0'
	for _, fd := range r.Join {
		// A process that moves itself does not take the lock that waits for all of the machine.
		c.add(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&c.zero[0])), 1)
	}
	// Only now: the namespace's root is where its maker sits.
	c.add(unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP)
	// Until the id maps are written, or this process is dead: then setresgid fails.
	c.add(unix.SYS_CLOSE, uintptr(gate[1]))
	c.add(unix.SYS_READ, uintptr(gate[0]), uintptr(unsafe.Pointer(&c.byte[0])), 1)
	c.add(unix.SYS_SETGROUPS)
	c.add(unix.SYS_SETRESGID)
	c.add(unix.SYS_SETRESUID)
	c.add(unix.SYS_SETSID)
	c.add(unix.SYS_DUP3, uintptr(r.Listen), ListenFD)
	copy(c.name[:], "dsec-guest")
	c.argv[0] = &c.name[0]
	for i, v := range guestEnv {
		c.env[i] = unsafe.StringData(v)
	}
	// By descriptor: the binary lies in a directory that the box's ids cannot enter.
	strconv.AppendInt(append(c.exe[:0], "/proc/self/fd/"...), int64(r.Exe), 10)
	c.add(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&c.exe[0])), uintptr(unsafe.Pointer(&c.argv[0])), uintptr(unsafe.Pointer(&c.env[0])))
	c.busy.Store(1)
	c.args = cloneArgs{
		flags: namespaces | unix.CLONE_VM | unix.CLONE_PIDFD | unix.CLONE_CHILD_CLEARTID |
			unix.CLONE_CLEAR_SIGHAND | unix.CLONE_INTO_CGROUP,
		pidFD:      uint64(uintptr(unsafe.Pointer(&c.pidfd))),
		childTID:   uint64(uintptr(unsafe.Pointer(&c.busy))),
		exitSignal: uint64(unix.SIGCHLD),
		cgroup:     uint64(r.Cgroup),
	}
}

// start clones. The child waits at the gate. The owner of its user namespace is
// the box's own first id: what is counted by user (inotify instances, queued
// signals, message queues) counts for a namespace's owner, too, and were that
// root, one box could use up what all others and the machine itself need.
func (c *child) start(owner uint32) (pid int, errno syscall.Errno) {
	if errno = setEUID(owner); errno != 0 {
		return 0, errno
	}
	r := cloneRun(&c.args, unsafe.Sizeof(c.args), &c.calls[0], uintptr(c.n))
	if setEUID(0) != 0 {
		os.Exit(1) // cannot be, as its real user is root; another spawner serves the next creates
	}
	if r >= ^uintptr(4094) {
		c.busy.Store(0)
		return 0, syscall.Errno(-r)
	}
	return int(r), 0
}

// keepCaps lets the calling thread keep its capabilities over setEUID.
func keepCaps() error {
	const noSetuidFixup = 1 << 2
	return unix.Prctl(unix.PR_SET_SECUREBITS, noSetuidFixup, 0, 0, 0)
}

// setEUID changes the effective user of the calling thread only.
func setEUID(id uint32) syscall.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(id), ^uintptr(0))
	return errno
}

// wait returns when the child has executed the guest or is dead.
func (c *child) wait() {
	for c.busy.Load() != 0 {
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&c.busy)), 0 /* FUTEX_WAIT */, 1, 0, 0, 0)
	}
}
