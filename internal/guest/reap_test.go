package guest

import (
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/spawn"
)

// TestAwaitEnd: the end of a process is seen by its pidfd; without one somebody else has to wait.
func TestAwaitEnd(t *testing.T) {
	if awaitEnd(-1) {
		t.Error("it claims to have seen the end of a process that it knows nothing of")
	}
	s := &spawn.Spec{Paths: []string{"/bin/sleep"}, Argv: []string{"sleep", "0.05"}, Pid: new(atomic.Int32)}
	fd, err := spawn.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	if !awaitEnd(fd) {
		t.Error("a pidfd cannot be polled")
	}
	var status unix.WaitStatus
	if pid, err := unix.Wait4(int(s.Pid.Load()), &status, unix.WNOHANG, nil); err != nil || pid != int(s.Pid.Load()) || status.ExitStatus() != 0 {
		t.Errorf("after its end: %d, %v, %v", pid, status, err)
	}
}
