// The run time would look for the CPU limit of its cgroup at every start, and
// keep the host's files open:
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// dsec-guest is PID 1 of a box (see package guest) and, called dsec-files, the
// worker that does its file operations.
package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest"
	"github.com/dsec-platform/dsec/internal/guest/files"
	"github.com/dsec-platform/dsec/internal/guest/pid1"
)

// build is set by the linker.
var build = "dev"

func main() {
	if os.Args[0] == guest.WorkerName {
		_ = unix.SetNonblock(guest.WorkerFD, true)
		if err := files.Run(os.NewFile(guest.WorkerFD, "guest")); err != nil {
			os.Exit(1)
		}
		return
	}
	if err := pid1.Run(build, os.Args); err != nil {
		os.Exit(1)
	}
}
