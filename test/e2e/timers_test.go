package e2e

import (
	"strings"
	"testing"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// The server's timers are lax; those of what runs in a box are the kernel's own.
func TestTimersOfABoxAreTheKernels(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	r := mustRun(t, s, dsec.Command{Argv: []string{"cat", "/proc/self/timerslack_ns"}})
	if got := strings.TrimSpace(string(r.GetStdout().GetHead())); got != "50000" {
		t.Errorf("timers may be %s ns late, want 50000", got)
	}
}
