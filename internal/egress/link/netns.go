package link

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// inside runs fn on a thread that is in the network namespace ns meanwhile. What fn opens there
// stays bound to it; everything else belongs outside.
func inside(ns *os.File, fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		defer home.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			runtime.UnlockOSThread()
			done <- fmt.Errorf("enter the box's network namespace: %w", err)
			return
		}
		err = fn()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			// The thread stays locked and ends with this goroutine: nobody else may run in the box's namespace.
			done <- fmt.Errorf("leave the box's network namespace: %w", back)
			return
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}
