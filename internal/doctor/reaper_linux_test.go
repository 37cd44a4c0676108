package doctor

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestReaper: this process stands for an init that does not reap, and then does.
func TestReaper(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, err := awaitReaped(t.Context(), cmd.Process.Pid, 300*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "zombie") || !strings.Contains(err.Error(), commandName(os.Getpid())) {
		t.Errorf("an init that does not reap: %v", err)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = cmd.Wait() })
	if found, err := awaitReaped(t.Context(), cmd.Process.Pid, 20*time.Second); err != nil || found == "" {
		t.Errorf("one that does: %q, %v", found, err)
	}
	// What this machine's own does is its affair; the probe says the one or the other.
	found, err := (&prober{}).reaper(t.Context())
	if err != nil && !strings.Contains(err.Error(), "does not reap") || err == nil && found == "" {
		t.Errorf("%q, %v", found, err)
	}
}
