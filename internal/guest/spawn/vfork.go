package spawn

import (
	"runtime"
	"syscall"
	"unsafe"
)

// call is one system call of the child's list.
type call struct {
	nr     uintptr
	args   [6]uintptr
	lax    uintptr  // non-zero: go on when it fails
	out    *uintptr // where to put its result, for a later call's argument
	result uintptr
}

func (c *call) errno() syscall.Errno {
	if c.result >= ^uintptr(4094) {
		return syscall.Errno(-c.result)
	}
	return 0
}

// cloneArgs is the kernel's clone_args.
type cloneArgs struct {
	flags, pidFD, _, parentTID, exitSignal uint64
	_, _, _, _, _                          uint64 // stack, its size, tls, pids to choose and their number
	cgroup                                 uint64
}

const (
	cloneVM           = 0x100
	clonePidFD        = 0x1000
	cloneVfork        = 0x4000
	cloneParentSetTID = 0x100000
	cloneClearSighand = 0x100000000
	cloneIntoCgroup   = 0x200000000
)

func vforkRun(args *cloneArgs, size uintptr, prog *call, n uintptr, failed *uint32) (r uintptr)

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

//go:linkname entersyscallblock runtime.entersyscallblock
func entersyscallblock()

// WaitAny waits until a child has ended, without reaping it; info is waitid's. The processor goes to
// other goroutines at once: after a usual system call they have it when the runtime's monitor has
// seen that it takes long, which with one processor is all that a guest does for 0.3 ms.
func WaitAny(info *[128]byte) error {
	if e := (&call{result: waitAny(info)}).errno(); e != 0 {
		return e
	}
	return nil
}

//go:nosplit
//go:norace
func waitAny(info *[128]byte) uintptr {
	entersyscallblock()
	_, _, e := syscall.RawSyscall6(syscall.SYS_WAITID, 0 /* P_ALL */, 0, uintptr(unsafe.Pointer(info)), syscall.WEXITED|syscall.WNOWAIT, 0, 0)
	exitsyscall()
	return -uintptr(e)
}

// inSyscall runs the fork as what it is for the scheduler: a system call that may block.
//
//go:nosplit
//go:norace
func inSyscall(args *cloneArgs, prog *call, n uintptr, failed *uint32) uintptr {
	entersyscall()
	r := vforkRun(args, unsafe.Sizeof(*args), prog, n, failed)
	exitsyscall()
	return r
}

// fork runs the list in a new child and gives its pid when it has executed a
// program, failed or died. Everything that args and calls point to is on the heap
// and kept by the caller.
func fork(args *cloneArgs, calls []call, failed *uint32) (int, syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// No Go signal handler may run on the child's side.
	all, old := new(uint64), new(uint64)
	*all = ^uint64(0)
	sigmask(all, old)
	r := inSyscall(args, &calls[0], uintptr(len(calls)), failed)
	sigmask(old, nil)
	if c := (call{result: r}); c.errno() != 0 {
		return 0, c.errno()
	}
	return int(r), 0
}

//go:nosplit
//go:norace
func sigmask(set, old *uint64) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 2 /* SIG_SETMASK */, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
}
