package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/fake"
)

func TestCreateAndDestroyAreIdempotent(t *testing.T) {
	r := newRig(t)
	first := r.create("s1")
	if again := r.create("s1"); again.Box != first.Box {
		t.Errorf("second create made box %s, want %s", again.Box, first.Box)
	}
	other := request("s1")
	other.Version = 2
	if _, err := r.node.Create(context.Background(), other); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("create with another version: %v, want conflict", err)
	}
	if st := r.node.Stats(context.Background()); st.MemPromised != 16*mib || st.Boxes != 1 {
		t.Errorf("stats %+v", st)
	}
	r.destroy("s1")
	r.destroy("s1")
	r.destroy("never")
	r.empty()
	if _, _, err := r.node.Acquire(context.Background(), "s1"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("acquire after destroy: %v, want not_found", err)
	}
}

func TestConcurrentCreatesOfOneSessionMakeOneBox(t *testing.T) {
	r := newRig(t)
	var wg sync.WaitGroup
	boxes := make([]string, 20)
	for i := range boxes {
		wg.Go(func() { boxes[i] = r.create("s").Box })
	}
	wg.Wait()
	for _, b := range boxes {
		if b != boxes[0] {
			t.Fatalf("boxes %v", boxes)
		}
	}
	if len(r.rt.IDs()) != 1 {
		t.Errorf("boxes on the machine: %v", r.rt.IDs())
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Memory = 40 * mib })
	for name, tc := range map[string]struct {
		change func(*CreateRequest)
		want   errdefs.Reason
		class  errdefs.Class
	}{
		"no session":      {func(q *CreateRequest) { q.Session = "" }, errdefs.InvalidArgument, errdefs.User},
		"unknown runtime": {func(q *CreateRequest) { q.Runtime = "gvisor" }, errdefs.Unsupported, errdefs.User},
		"never fits":      {func(q *CreateRequest) { q.Claim.Limits.Memory = 1 << 40 }, errdefs.NodeFull, errdefs.User},
	} {
		t.Run(name, func(t *testing.T) {
			q := request("s")
			tc.change(&q)
			_, err := r.node.Create(context.Background(), q)
			if e := errdefs.From(err); err == nil || e.Reason != tc.want || e.Class != tc.class {
				t.Errorf("got %v", err)
			}
		})
	}
	r.create("a")
	r.create("b")
	_, err := r.node.Create(context.Background(), request("c"))
	if e := errdefs.From(err); !errors.Is(err, errdefs.ErrNodeFull) || e.Class != errdefs.Limit || !e.Retryable {
		t.Fatalf("third box: %v, want a retryable node_full", err)
	}
	r.destroy("a")
	r.event(CapacityFree)
	r.create("c")

	r.node.SetDraining(true)
	if _, err := r.node.Create(context.Background(), request("d")); !errors.Is(err, errdefs.ErrNodeFull) {
		t.Errorf("create on a draining node: %v", err)
	}
	r.destroy("b")
	r.destroy("c")
	r.empty()
}

func TestCancelledCreateLeavesNothing(t *testing.T) {
	r := newRig(t)
	entered := make(chan struct{})
	r.rt.SetHooks(fake.Hooks{Create: func(ctx context.Context, _ runtime.Config) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}})
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() {
		_, err := r.node.Create(ctx, request("s"))
		failed <- err
	}()
	<-entered
	// Somebody else waits for the same session; he is not cancelled and makes it himself.
	r.rt.SetHooks(fake.Hooks{})
	joined := make(chan error)
	go func() {
		_, err := r.node.Create(context.Background(), request("s"))
		joined <- err
	}()
	cancel()
	if err := <-failed; errdefs.From(err).Reason != errdefs.Canceled {
		t.Errorf("cancelled create: %v", err)
	}
	if err := <-joined; err != nil {
		t.Errorf("joined create: %v", err)
	}
	r.destroy("s")
	r.empty()
}

func TestDestroyEndsACreateInFlight(t *testing.T) {
	r := newRig(t)
	entered := make(chan struct{})
	r.rt.SetHooks(fake.Hooks{Create: func(ctx context.Context, _ runtime.Config) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}})
	failed := make(chan error)
	go func() {
		_, err := r.node.Create(context.Background(), request("s"))
		failed <- err
	}()
	<-entered
	r.destroy("s")
	if err := <-failed; err == nil {
		t.Error("the create succeeded")
	}
	r.empty()
}

func TestCreateThatFails(t *testing.T) {
	r := newRig(t)
	r.rt.SetHooks(fake.Hooks{Create: func(context.Context, runtime.Config) error {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "disk", "full")
	}})
	if _, err := r.node.Create(context.Background(), request("s")); errdefs.From(err).Class != errdefs.Infrastructure {
		t.Errorf("got %v", err)
	}
	r.empty()
	r.rt.SetHooks(fake.Hooks{})
	r.create("s")
}

func TestPromiseStandsUntilTheReclaimIsProven(t *testing.T) {
	r := newRig(t)
	r.create("s")
	var tries atomic.Int32
	r.rt.SetHooks(fake.Hooks{Destroy: func(context.Context, string) error {
		if tries.Add(1) == 1 {
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "cgroup", "busy")
		}
		return nil
	}})
	if err := r.node.Destroy(context.Background(), "s", "test"); err == nil {
		t.Fatal("a destroy without proof succeeded")
	}
	if st := r.node.Stats(context.Background()); st.MemPromised != 16*mib {
		t.Errorf("promise was taken back: %+v", st)
	}
	if got := r.states()["s"]; got != Destroying {
		t.Errorf("state %q", got)
	}
	if _, err := r.node.Create(context.Background(), request("s")); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("create beside a box that is being destroyed: %v", err)
	}
	r.destroy("s")
	r.empty()
}

func TestDestroyGoesOnWithoutItsCaller(t *testing.T) {
	r := newRig(t)
	r.create("s")
	entered, let := make(chan struct{}), make(chan struct{})
	r.rt.SetHooks(fake.Hooks{Destroy: func(context.Context, string) error {
		close(entered)
		<-let
		return nil
	}})
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() { failed <- r.node.Destroy(ctx, "s", "test") }()
	<-entered
	cancel()
	if err := <-failed; err == nil {
		t.Error("destroy returned nil before its proof")
	}
	close(let)
	eventually(t, "the reclaim goes on", func() bool { return len(r.rt.IDs()) == 0 })
	r.destroy("s")
	r.empty()
}

func TestCreationIsBounded(t *testing.T) {
	r := newRig(t, func(c *Config) { c.CreateConcurrency = 3 })
	var now, most atomic.Int32
	r.rt.SetHooks(fake.Hooks{Create: func(context.Context, runtime.Config) error {
		if v := now.Add(1); v > most.Load() {
			most.Store(v)
		}
		defer now.Add(-1)
		return nil
	}})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { r.create(fmt.Sprintf("s%d", i)) })
	}
	wg.Wait()
	if most.Load() > 3 {
		t.Errorf("%d boxes were in the making at once", most.Load())
	}
}

func TestCodeIsInjected(t *testing.T) {
	r := newRig(t)
	q := request("s")
	q.Code, q.CodeDir = strings.NewReader("a tar"), "/workspace"
	b, err := r.node.Create(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	if string(r.guests.code) != "a tar" || b.Timing["code"] == 0 {
		t.Errorf("code %q, timing %v", r.guests.code, b.Timing)
	}
}

// A fault of the machine that is over a moment later costs the session nothing.
func TestFailedMakeIsTriedOnceMore(t *testing.T) {
	r := newRig(t)
	var calls atomic.Int32
	fail := int32(1)
	r.rt.SetHooks(fake.Hooks{Create: func(context.Context, runtime.Config) error {
		if calls.Add(1) <= fail {
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box", "the spawner was killed")
		}
		return nil
	}})
	if b := r.create("s"); b.Box == "" || len(r.rt.IDs()) != 1 {
		t.Errorf("%+v, boxes %v", b, r.rt.IDs())
	}
	calls.Store(0)
	fail = 100
	if _, err := r.node.Create(context.Background(), request("t")); errdefs.From(err).Class != errdefs.Infrastructure || calls.Load() != 2 {
		t.Errorf("%v after %d attempts", err, calls.Load())
	}
	r.destroy("s")
	r.empty()
}
