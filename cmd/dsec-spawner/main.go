// The run time would look for the CPU limit of its cgroup at every start, and
// keep the host's files open:
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// dsec-spawner is the parent of the boxes of one node; see package spawner.
package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime/native/spawner"
)

func main() {
	// Inherited by the guests: the machine's OOM killer takes them last of all.
	// Not -1000: a guest that fills its own budget must die rather than spin.
	if fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Write(fd, []byte("-999"))
		unix.Close(fd)
	}
	_ = spawner.Serve(spawner.ListenFD) // returns on a failure alone
	os.Exit(1)
}
