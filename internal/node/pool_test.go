package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/fake"
	"github.com/dsec-platform/dsec/internal/spec"
)

func (r *rig) pooled() int { return r.node.Stats(context.Background()).Pooled }

func (r *rig) warm(n int) {
	r.t.Helper()
	if err := r.node.Warm("", runtime.Root{Template: "base@1"}, false); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, fmt.Sprintf("%d boxes in the pool", n), func() bool { return r.pooled() == n })
}

func TestPoolServesAndRefills(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 3, MaxIdle: 10}))
	if b := r.create("first"); b.Pooled || b.ColdReason != coldFirst {
		t.Errorf("first create: %+v", b)
	}
	eventually(t, "the pool is filled", func() bool { return r.pooled() >= 3 })
	before := map[string]bool{}
	for _, id := range r.rt.IDs() {
		before[id] = true
	}
	b := r.create("second")
	if !b.Pooled || b.ColdReason != "" || !before[b.Box] {
		t.Errorf("second create: %+v", b)
	}
	c := r.rt.Box(b.Box).Config()
	if !c.Pooled || c.Limits.Memory != 16*mib {
		t.Errorf("claimed box: %+v", c)
	}
	q := request("third")
	q.NoPool = true
	if b, err := r.node.Create(context.Background(), q); err != nil || b.Pooled || b.ColdReason != coldNotWanted {
		t.Errorf("third create: %+v, %v", b, err)
	}
	q = request("fourth")
	q.RootWritable = true
	if b, err := r.node.Create(context.Background(), q); err != nil || b.ColdReason != coldFirst {
		t.Errorf("another key: %+v, %v", b, err)
	}
	st := r.node.Stats(context.Background())
	if st.PoolHits != 1 || st.PoolMisses != 3 || st.ColdReasons[coldNotWanted] != 1 {
		t.Errorf("stats %+v", st)
	}
}

func TestPoolOff(t *testing.T) {
	r := newRig(t)
	if b := r.create("s"); b.ColdReason != coldPoolOff {
		t.Errorf("%+v", b)
	}
	if len(r.rt.IDs()) != 1 {
		t.Errorf("boxes %v", r.rt.IDs())
	}
}

func TestUsedBoxNeverReturns(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 2, MaxIdle: 2}))
	r.warm(2)
	used := map[string]bool{}
	for i := range 20 {
		s := fmt.Sprintf("s%d", i)
		b := r.create(s)
		if used[b.Box] {
			t.Fatalf("box %s was given out twice", b.Box)
		}
		used[b.Box] = true
		r.destroy(s)
	}
}

func TestClaimAdmitsTheDifference(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 1, MaxIdle: 1}), func(c *Config) { c.PoolLimits.Memory = 8 * mib })
	r.warm(1)
	promised := func() int64 { return r.node.Stats(context.Background()).MemPromised }
	if promised() != 8*mib {
		t.Errorf("an idle box holds %d", promised())
	}
	r.node.SetDraining(false)
	small := request("small")
	small.Claim.Limits.Memory = 4 * mib
	b, err := r.node.Create(context.Background(), small)
	if err != nil || !b.Pooled {
		t.Fatal(b, err)
	}
	eventually(t, "pool filled again", func() bool { return r.pooled() == 1 })
	if promised() != 12*mib {
		t.Errorf("promised %d, want 12 MiB", promised())
	}
	if b := r.create("s"); !b.Pooled {
		t.Errorf("%+v", b)
	}
	eventually(t, "pool filled again", func() bool { return r.pooled() == 1 })
	if promised() != 28*mib {
		t.Errorf("promised %d, want 28 MiB", promised())
	}
}

func TestFailedClaimIsMadeCold(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 1, MaxIdle: 1}))
	r.warm(1)
	r.rt.SetHooks(fake.Hooks{Claim: func(context.Context, string) error {
		return errdefs.Infraf(errdefs.ScopeBox, errdefs.Internal, "box", "mount failed")
	}})
	if b := r.create("s"); b.Pooled || b.ColdReason != coldClaimFailed {
		t.Errorf("%+v", b)
	}
	eventually(t, "pool filled again", func() bool { return r.pooled() == 1 })
	r.rt.SetHooks(fake.Hooks{Claim: func(context.Context, string) error {
		return errdefs.Userf(errdefs.InvalidArgument, "field user", "", "no such user")
	}})
	if _, err := r.node.Create(context.Background(), request("bad")); errdefs.From(err).Class != errdefs.User {
		t.Errorf("a wrong claim: %v", err)
	}
}

// A pooled box whose store cannot become what a session asks for is no refusal, and the next boxes are made as asked.
func TestPoolFollowsTheStoreOfWritableRoots(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 1, MaxIdle: 1}))
	if err := r.node.Warm("", runtime.Root{Template: "base@1"}, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pool is filled", func() bool { return r.pooled() == 1 })
	r.rt.SetHooks(fake.Hooks{Claim: func(_ context.Context, id string) error {
		if c := r.rt.Box(id).Config(); c.StoreSize != 64*mib {
			return errdefs.Userf(errdefs.Unsupported, "box "+id, "", "its store cannot be resized")
		}
		return nil
	}})
	make := func(session string) *Bound {
		q := request(session)
		q.RootWritable, q.Claim.Store, q.Claim.StoreSize = true, "disk", 64*mib
		b, err := r.node.Create(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "pool filled again", func() bool { return r.pooled() == 1 })
		return b
	}
	if b := make("s1"); b.Pooled || b.ColdReason != coldOtherStore {
		t.Errorf("%+v", b)
	}
	if b := make("s2"); !b.Pooled {
		t.Errorf("%+v", b)
	}
}

func TestPoolPrefersTheStoreThatIsAskedFor(t *testing.T) {
	disk := func(size int64) poolStore { return poolStore{"disk", size} }
	q := &pool{key: poolKey{rootWritable: true}, idle: []*box{{store: disk(1)}, {store: disk(2)}, {store: disk(1)}, {store: disk(3)}}}
	for size, want := range map[int64]int{1: 2, 2: 1, 3: 3, 4: 3} {
		if got := q.fitting(disk(size)); got != want {
			t.Errorf("size %d: box %d, want %d", size, got, want)
		}
	}
	q.key.rootWritable = false
	if got := q.fitting(disk(1)); got != 3 {
		t.Errorf("a read-only root: box %d", got)
	}
}

func TestIdleBoxesGiveWayToSessions(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 4, MaxIdle: 4}), func(c *Config) {
		c.Memory = 32 * mib
		c.PoolLimits.Memory = 8 * mib
	})
	r.warm(4)
	q := request("s")
	q.Claim.Limits.Memory = 32 * mib
	if _, err := r.node.Create(context.Background(), q); err != nil {
		t.Fatalf("a full pool kept a session out: %v", err)
	}
	if r.pooled() != 0 {
		t.Errorf("%d boxes are still idle", r.pooled())
	}
}

func TestCPUShortageDoesNotEmptyThePool(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 2, MaxIdle: 2}), func(c *Config) { c.CPU = 2 })
	r.warm(2)
	q := request("s")
	q.Claim.Limits.CPURequest = 3
	q.NoPool = true
	if _, err := r.node.Create(context.Background(), q); err != nil {
		t.Fatal(err)
	}
	q.Session = "t"
	if _, err := r.node.Create(context.Background(), q); err == nil {
		t.Fatal("cpu was promised more often than the ratio says")
	}
	if r.pooled() != 2 {
		t.Errorf("pool has %d boxes", r.pooled())
	}
}

func TestRefusedClaimLeavesThePoolAlone(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 1, MaxIdle: 1}), func(c *Config) { c.CPU = 1; c.Scheduler.CPUOvercommitRatio = 1 })
	r.warm(1)
	for range cap(r.node.pools.tokens) {
		r.node.pools.tokens <- struct{}{} // while the claim that is refused holds the box, no other is made
	}
	idle := r.rt.IDs()[0]
	q := request("busy")
	q.NoPool, q.Claim.Limits.CPURequest = true, 1
	if _, err := r.node.Create(context.Background(), q); err != nil {
		t.Fatal(err)
	}
	more := request("s")
	more.Claim.Limits.CPURequest = 1
	if _, err := r.node.Create(context.Background(), more); !errors.Is(err, errdefs.ErrNodeFull) {
		t.Fatalf("got %v", err)
	}
	r.destroy("busy")
	if b := r.create("s"); b.Box != idle {
		t.Errorf("box %s (%s), want the idle %s", b.Box, b.ColdReason, idle)
	}
}

func TestCPULimitIsACeilingNotAPromise(t *testing.T) {
	r := newRig(t, func(c *Config) { c.CPU = 1 })
	for i, cpu := range []float64{64, 0, 2} {
		q := request(fmt.Sprint("s", i))
		q.Claim.Limits.CPU = cpu
		if _, err := r.node.Create(context.Background(), q); err != nil {
			t.Fatal(err)
		}
	}
	if st := r.node.Stats(context.Background()); st.CPUPromised != 0 {
		t.Errorf("promised %v cores, none was requested", st.CPUPromised)
	}
	for i := range 3 {
		r.destroy(fmt.Sprint("s", i))
	}
	r.empty()
}

func TestDropTemplate(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 3, MaxIdle: 3}))
	r.warm(3)
	bound := r.create("s").Box
	if err := r.node.DropTemplate(context.Background(), "base@1"); err != nil {
		t.Fatal(err)
	}
	if ids := r.rt.IDs(); len(ids) != 1 || ids[0] != bound {
		t.Errorf("boxes %v, want only %s", ids, bound)
	}
	time.Sleep(20 * time.Millisecond)
	if r.pooled() != 0 {
		t.Error("the pool of a dropped template was filled again")
	}
}

func TestPoolHoldsItsTemplate(t *testing.T) {
	var held atomic.Int32
	var removed atomic.Bool
	r := newRig(t, withPool(spec.Pool{MinIdle: 2, MaxIdle: 2}), func(c *Config) {
		c.Hold = func(_ context.Context, template string) (func(), error) {
			if removed.Load() {
				return nil, errdefs.Userf(errdefs.NotFound, "template "+template, "import it", "there is none")
			}
			held.Add(1)
			return func() { held.Add(-1) }, nil
		}
	})
	r.warm(2)
	if held.Load() != 1 {
		t.Errorf("held %d times", held.Load())
	}
	if err := r.node.DropTemplate(context.Background(), "base@1"); err != nil {
		t.Fatal(err)
	}
	if held.Load() != 0 {
		t.Error("a dropped pool holds its template")
	}
	r.warm(2)
	r.crash()
	r.start()
	eventually(t, "the pool is adopted", func() bool { return r.pooled() == 2 })
	r.crash()
	removed.Store(true)
	r.start()
	if r.pooled() != 0 || len(r.rt.IDs()) != 0 {
		t.Errorf("idle boxes of a removed template: %v", r.rt.IDs())
	}
	if held.Load() != 0 {
		t.Errorf("held %d times at the end", held.Load())
	}
}

func TestDeadIdleBoxIsReplaced(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 1, MaxIdle: 1}))
	r.warm(1)
	dead := r.rt.IDs()[0]
	r.rt.Box(dead).Kill()
	if b := r.create("s"); b.Box == dead {
		t.Errorf("a dead box was given out")
	}
	eventually(t, "the dead box is removed", func() bool { return r.rt.Box(dead) == nil })
	eventually(t, "the pool is filled again", func() bool { return r.pooled() == 1 })
}

func TestDrainEmptiesThePool(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 3, MaxIdle: 3}))
	r.warm(3)
	r.node.SetDraining(true)
	eventually(t, "the pool is empty", func() bool { return len(r.rt.IDs()) == 0 })
	r.node.SetDraining(false)
	eventually(t, "the pool is filled", func() bool { return r.pooled() == 3 })
}

func TestRefillStandsBackForCreates(t *testing.T) {
	var making, most atomic.Int32
	r := newRig(t, withPool(spec.Pool{MinIdle: 50, MaxIdle: 50}), func(c *Config) { c.RefillConcurrency = 2 })
	r.rt.SetHooks(fake.Hooks{Create: func(_ context.Context, c runtime.Config) error {
		if c.Pooled {
			most.Store(max(most.Load(), making.Add(1)))
			time.Sleep(time.Millisecond)
			making.Add(-1)
		}
		return nil
	}})
	r.warm(50)
	if most.Load() > 2 {
		t.Errorf("%d refills at once", most.Load())
	}
}

func TestPoolFollowsArrivals(t *testing.T) {
	virtual(t, func(r *rig) {
		r.rt.SetHooks(fake.Hooks{Create: func(_ context.Context, c runtime.Config) error {
			time.Sleep(500 * time.Millisecond)
			return nil
		}})
		for i := range 200 {
			s := fmt.Sprintf("s%d", i)
			r.create(s)
			r.destroy(s)
			time.Sleep(100 * time.Millisecond)
		}
		if st := r.node.Stats(context.Background()); st.PoolTarget < 2 || st.PoolHits < 100 {
			r.t.Errorf("while creates arrive: %+v", st)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if quiet := r.pooled(); quiet != 1 {
			r.t.Errorf("%d idle boxes after a quiet time, want min_idle", quiet)
		}
		time.Sleep(keyTTL)
		synctest.Wait()
		if ids := r.rt.IDs(); len(ids) != 0 {
			r.t.Errorf("boxes of a forgotten key: %v", ids)
		}
	}, withPool(spec.Pool{MinIdle: 1, MaxIdle: 20}))
}
