package native

import (
	"testing"
	"time"
)

// zombies counts the dead that nobody has waited for.
const zombies = `cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z'`

// TestOrphansAreReaped: PID 1 waits for what others leave behind, while a command runs as well as after it.
func TestOrphansAreReaped(t *testing.T) {
	m := newMachine(t)
	b := m.create()
	g := guestOf(t, b)
	for name, script := range map[string]string{
		"of a command that runs":       `for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.05 &); done; sleep 0.5; ` + zombies + `; true`,
		"of a short command, dead":     `(true &); (true &); true; exit`,
		"of a short command, survivor": `(sleep 0.2 >/dev/null 2>&1 &)`,
		"of a survivor":                `(sh -c '(sleep 0.1 &); sleep 0.3' >/dev/null 2>&1 &)`,
	} {
		if got := out(t, g, "user", script); got != "" && got != "0" {
			t.Errorf("%s: %s zombies", name, got)
		}
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		// The one that counts is no zombie itself, nor what it started.
		got := out(t, g, "user", zombies+`; cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep; true`)
		if got == "0\n0" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("zombies, and processes that sleep: %q", got)
		}
	}
	if err := b.Destroy(ctx(t)); err != nil {
		t.Error(err)
	}
	m.clean()
}
