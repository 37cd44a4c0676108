package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// A lent box is promised its memory, waits for room as others do, and is no orphan until it is given back.
func TestLend(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	id, release, err := r.node.Lend(ctx, runtime.Limits{Memory: 600 * mib})
	if err != nil {
		t.Fatal(err)
	}
	box, err := r.rt.Create(ctx, runtime.Config{ID: id, Claim: runtime.Claim{Limits: runtime.Limits{Memory: 600 * mib, Pids: 10}}})
	if err != nil {
		t.Fatal(err)
	}
	r.node.patrol()
	select {
	case <-box.Done():
		t.Error("the patrol has removed a lent box")
	default:
	}
	if got := r.node.Stats(ctx).MemPromised; got != 600*mib {
		t.Errorf("%d bytes are promised", got)
	}
	if _, _, err := r.node.Lend(ctx, runtime.Limits{Memory: 2 << 30}); !errors.Is(err, errdefs.ErrNodeFull) {
		t.Errorf("more than there is: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, _, err := r.node.Lend(short, runtime.Limits{Memory: 600 * mib}); errdefs.From(err).Reason != errdefs.TimedOut {
		t.Errorf("waiting for room: %v", err)
	}
	// Whoever waits is woken by what is given back.
	waited := make(chan time.Duration)
	go func() {
		began := time.Now()
		_, back, err := r.node.Lend(ctx, runtime.Limits{Memory: 600 * mib})
		if err != nil {
			t.Error(err)
		} else {
			back()
		}
		waited <- time.Since(began)
	}()
	time.Sleep(50 * time.Millisecond)
	release()
	release()
	if d := <-waited; d > loanPause {
		t.Errorf("it waited for %v", d)
	}
	if got := r.node.Stats(ctx).MemPromised; got != 0 {
		t.Errorf("%d bytes are still promised", got)
	}
	r.node.patrol()
	eventually(t, "what is not lent any more is an orphan", func() bool {
		select {
		case <-box.Done():
			return true
		default:
			return false
		}
	})
}

// A box is bound when its start command is ready, and not if that fails.
func TestStartCommand(t *testing.T) {
	r := newRig(t, realGuests)
	dir := t.TempDir()
	up, asked := filepath.Join(dir, "up"), filepath.Join(dir, "asked")
	req := request("s")
	req.Start = Start{
		Command: "echo x >>" + filepath.Join(dir, "runs") + "; sleep 0.3; touch " + up + "; exec sleep 60",
		Ready:   "echo >>" + asked + "; test -e " + up,
	}
	if _, err := r.node.Create(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(up); err != nil {
		t.Errorf("bound before it was ready: %v", err)
	}
	if b, err := os.ReadFile(asked); err != nil || len(b) < 2 {
		t.Errorf("asked %d times, %v", len(b), err)
	}
	g, release := r.guest("s")
	if op, err := g.Get(t.Context(), startOp); err != nil || !op.Running || !op.Background {
		t.Errorf("%+v, %v", op, err)
	}
	release()
	// A restart of the node is not one of the box.
	r.crash()
	r.start()
	if b, err := os.ReadFile(filepath.Join(dir, "runs")); err != nil || string(b) != "x\n" {
		t.Errorf("it was started %q, %v", b, err)
	}
	for want, s := range map[string]Start{
		"ended with 3":                         {Command: "echo out of luck; sleep 0.1; exit 3", Ready: "false"},
		"before the box was":                   {Command: "kill -9 $$", Ready: "false"},
		"not in the box":                       {Command: "true", User: "nobody-knows"},
		"out of luck":                          {Command: "echo out of luck; sleep 0.1; exit 3", Ready: "false"},
		"no port is free":                      {Command: "sleep 0.1; echo no port is free; exit 4", Ready: "sleep 300"}, // which hangs
		"(goes into the background by itself)": {Command: "true", Ready: "test -e " + up},
	} {
		req := request("t")
		req.Start = s
		began := time.Now()
		_, err := r.node.Create(t.Context(), req)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: told after %v", want, took)
		}
		if strings.HasPrefix(want, "(") {
			if err != nil {
				t.Errorf("%s: %v", want, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || errdefs.From(err).Class != errdefs.User {
			t.Errorf("%s: %v", want, err)
		}
		if err := r.node.Destroy(t.Context(), "t", "test"); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.node.Destroy(t.Context(), "s", "test"); err != nil {
		t.Fatal(err)
	}
}
