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
