package node

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// bootTime counts from the kernel's start, sleep of the machine included. It
// goes on across restarts of the daemon, so that it may be journaled.
func bootTime() time.Duration {
	var ts unix.Timespec
	// It cannot fail for a clock that the kernel has had since 2.6.39.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}

func readBootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "machine", "its boot id cannot be read: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func machineMemory() (int64, error) {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return 0, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "machine", "its memory size cannot be read: %w", err)
	}
	return int64(si.Totalram) * int64(si.Unit), nil
}
