package native

import (
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// noZombies waits until PID 1 has no dead child. It looks from outside: a command in the box would have PID 1 look for them.
func noZombies(t *testing.T, b *box, what string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); launch.Zombies(b.pid) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: zombies are left", what)
		}
	}
}

// TestOrphansAreReaped: PID 1 waits for what others leave behind, while a command runs as well as after it.
func TestOrphansAreReaped(t *testing.T) {
	m := newMachine(t)
	b := m.create(func(c *runtime.Config) { c.Limits.Pids = 512 })
	g := guestOf(t, b)
	for _, c := range []struct {
		what, script string
		after        time.Duration // when all of it is dead
	}{
		{"orphans that die before their command", `(true &); (true &); exec true`, 0},
		{"an orphan of a short command", `(sleep 0.2 >/dev/null 2>&1 &)`, 300 * time.Millisecond},
		{"orphans of an orphan", `(sh -c '(sleep 0.1 &); (sleep 0.2 &); sleep 0.3' >/dev/null 2>&1 &)`, 400 * time.Millisecond},
		{"one of a new session", `setsid sh -c 'sleep 0.1 & sleep 0.2' >/dev/null 2>&1 &`, 300 * time.Millisecond},
	} {
		out(t, g, "user", c.script)
		time.Sleep(c.after)
		noZombies(t, b, c.what)
	}
	// While a command runs: its orphans die long before it.
	var wg sync.WaitGroup
	wg.Go(func() { out(t, g, "user", `for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.05 &); done; sleep 1`) })
	time.Sleep(400 * time.Millisecond)
	noZombies(t, b, "orphans of a command that runs")
	wg.Wait()
	// All at once, with ends before and after the loop begins to wait.
	for _, length := range []string{"0", "0.009", "0.010", "0.011", "0.05"} {
		for range 8 {
			wg.Go(func() {
				for i := range 5 {
					script := "(sleep 0.02 >/dev/null 2>&1 &); sleep " + length + "; exit " + itoa(i)
					if res := run(t, g, "user", script); res.ExitCode != i || res.Signal != "" {
						t.Errorf("exit %d %s, want %d", res.ExitCode, res.Signal, i)
					}
				}
			})
		}
	}
	wg.Wait()
	noZombies(t, b, "two hundred commands")
	if err := b.Destroy(ctx(t)); err != nil {
		t.Error(err)
	}
	m.clean()
}
