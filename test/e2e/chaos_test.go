package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/launch"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// TestKillAtRandomMoments kills the daemon, the spawner, or both with -9 at
// random moments under load (DSEC_TEST_KILLS times; 12 unless said). Every
// acknowledged op must have run exactly once, every retried op must be answered, and nothing may be left.
func TestKillAtRandomMoments(t *testing.T) {
	kills := 12
	if v := os.Getenv("DSEC_TEST_KILLS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		kills = n
	}
	e := startOwn(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	key, err := e.Key()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dsec.New(dsec.Options{URL: e.URL(), APIKey: key, RetryFor: patience(30 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	var sessions, ops, lost atomic.Int64
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				s, err := client.Create(context.WithoutCancel(ctx), dsec.CreateOptions{
					IdempotencyKey: fmt.Sprintf("chaos-%d-%d", w, i), SpecYAML: "mem_limit: 32Mi"})
				if err != nil {
					// A create that the kill caught between its record and its box may fail, typed and retryable.
					var de *dsec.Error
					if !errors.As(err, &de) || de.Class != dsec.ClassInfrastructure {
						t.Errorf("create: %v", err)
					}
					if lost.Add(1) <= 3 {
						t.Logf("a create failed: %v", err)
					}
					continue
				}
				sessions.Add(1)
				n := oneLife(t, ctx, s)
				ops.Add(int64(n))
				if err := s.Stop(context.WithoutCancel(ctx), "chaos"); err != nil {
					t.Errorf("stop: %v", err)
				}
			}
		})
	}

	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	daemons, spawners := 0, 0
	for k := range kills {
		time.Sleep(time.Duration(20+rng.IntN(400)) * time.Millisecond)
		what := rng.IntN(3) // 0 daemon, 1 spawner, 2 both
		if what != 0 {
			spawners += killSpawner(e.DataDir())
		}
		if what != 1 {
			e.Kill()
			daemons++
			startCtx, cancel := context.WithTimeout(ctx, patience(30*time.Second))
			err := e.Restart(startCtx)
			cancel()
			if err != nil {
				t.Fatalf("restart after kill %d: %v", k, err)
			}
		}
		if t.Failed() {
			break
		}
	}
	time.Sleep(300 * time.Millisecond)
	stop()
	wg.Wait()
	t.Logf("%d kills (%d daemons, %d spawners), %d sessions, %d ops acknowledged, %d creates failed with a typed infrastructure error", kills, daemons, spawners, sessions.Load(), ops.Load(), lost.Load())
	if sessions.Load() == 0 || ops.Load() == 0 {
		t.Error("nothing ran")
	}
	if kills >= 12 && (daemons == 0 || spawners == 0) {
		t.Error("not everything was killed")
	}
	if z := launch.Zombies(e.Pid()); z > 0 {
		t.Errorf("%d zombies are the daemon's children", z)
	}
}

// oneLife runs ops that leave a trace each, and checks that each acknowledged one left exactly one.
func oneLife(t *testing.T, ctx context.Context, s *dsec.Session) int {
	ctx = context.WithoutCancel(ctx)
	const n = 5
	for i := range n {
		cmd := dsec.Command{OpID: fmt.Sprintf("op-%d", i), Script: fmt.Sprintf("echo %d >> /workspace/log; echo out-%d", i, i)}
		r, err := s.Run(ctx, cmd)
		if err != nil {
			t.Errorf("session %s op %d: %v", s.ID(), i, err)
			return i
		}
		if got := string(dsec.Output(r.GetStdout())); got != fmt.Sprintf("out-%d\n", i) || r.GetExitCode() != 0 {
			t.Errorf("session %s op %d: exit %d, output %q, error %v", s.ID(), i, r.GetExitCode(), got, r.GetError())
		}
	}
	r, err := s.Run(ctx, dsec.Command{Argv: []string{"cat", "/workspace/log"}})
	if err != nil {
		t.Errorf("session %s: %v", s.ID(), err)
		return n
	}
	if got := string(dsec.Output(r.GetStdout())); got != "0\n1\n2\n3\n4\n" {
		t.Errorf("session %s: ops did not run exactly once: %q", s.ID(), got)
	}
	return n
}

// killSpawner tells how many spawners it killed: with the last box a spawner ends by itself.
func killSpawner(dataDir string) (killed int) {
	for pid, name := range launch.Processes(dataDir) {
		if name == "dsec-spawner" && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}
