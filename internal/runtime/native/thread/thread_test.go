package thread

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestNeverTheFirstThreadAndNeverTwice(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		tid := make(chan int)
		Go(func() { tid <- unix.Gettid() })
		seen[<-tid] = true
	}
	if seen[os.Getpid()] {
		t.Error("ran on the first thread")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if seen[unix.Gettid()] {
		t.Error("a used thread went back to the scheduler")
	}
}
