// Package thread runs functions on threads that nobody else uses afterwards,
// for work that changes the state of its thread: cgroup, namespaces, credentials.
package thread

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Go runs fn in a goroutine on a thread that ends with it. It is never the
// process's first thread: that one cannot end, and what it is, is what
// /proc/self shows and what the process's memory is charged to.
func Go(fn func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread() // holding the first thread until fn has another
			started := make(chan struct{})
			Go(func() { close(started); fn() })
			<-started
			return
		}
		fn() // never unlocked: the thread ends with the goroutine
	}()
}

// Drop takes a capability from the calling thread, for good.
func Drop(capability uint) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return os.NewSyscallError("capget", err)
	}
	d, bit := &data[capability/32], uint32(1)<<(capability%32)
	d.Effective &^= bit
	d.Permitted &^= bit
	d.Inheritable &^= bit
	return os.NewSyscallError("capset", unix.Capset(&head, &data[0]))
}
