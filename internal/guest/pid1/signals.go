package pid1

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// ignoreSignals gives every signal its default action, in place of the Go
// runtime's handlers. What a process of the box sends to PID 1 with the default action is
// dropped by the kernel at once: nothing that the box's root sends can end or
// occupy the guest. SIGURG stays the runtime's (preemption; harmless). A real
// fault still ends the process: the kernel forces it.
func ignoreSignals() {
	var action [32]byte // handler, flags, restorer, mask: all zero is SIG_DFL
	for sig := uintptr(1); sig <= 64; sig++ {
		switch unix.Signal(sig) {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGURG:
			continue
		}
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
}
