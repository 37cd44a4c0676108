package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/fake"
	"github.com/dsec-platform/dsec/internal/spec"
)

func TestBoxesAreAdopted(t *testing.T) {
	r := newRig(t, withPool(spec.Pool{MinIdle: 2, MaxIdle: 2}))
	r.warm(2)
	cold := request("cold")
	cold.NoPool = true
	if _, err := r.node.Create(context.Background(), cold); err != nil {
		t.Fatal(err)
	}
	r.create("pooled")
	r.create("frozen")
	r.create("dead")
	if err := r.node.Suspend(context.Background(), "frozen"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pool is full", func() bool { return r.pooled() == 2 })
	box := r.create("cold").Box
	ids := r.rt.IDs()
	dead := r.create("dead").Box
	r.crash()
	r.rt.Box(dead).Kill()
	r.start()

	want := map[string]State{"cold": Live, "pooled": Live, "frozen": Suspended, "dead": Lost}
	if got := r.states(); !maps.Equal(got, want) {
		t.Errorf("inventory %v, want %v", got, want)
	}
	if e := r.event(BoxLost); e.Session != "dead" {
		t.Errorf("event %+v", e)
	}
	left := slices.DeleteFunc(ids, func(id string) bool { return id == dead })
	eventually(t, "the pool is adopted", func() bool { return r.pooled() == 2 })
	for _, id := range left {
		if r.rt.Box(id) == nil {
			t.Errorf("box %s is gone", id)
		}
	}
	if b := r.create("cold"); b.Box != box {
		t.Errorf("a repeated create made box %s", b.Box)
	}
	if err := r.acquire("pooled"); err != nil {
		t.Errorf("acquire: %v", err)
	}
	// What is lost is remembered over another restart, until it was destroyed.
	r.crash()
	r.start()
	if got := r.states()["dead"]; got != Lost {
		t.Errorf("state %q", got)
	}
	for s := range want {
		r.destroy(s)
	}
	r.node.SetDraining(true)
	eventually(t, "nothing is left", func() bool { return len(r.rt.IDs()) == 0 })
	r.crash()
	r.start()
	if len(r.states()) != 0 {
		t.Errorf("inventory %v", r.states())
	}
}

func TestRebootForgetsEverything(t *testing.T) {
	r := newRig(t)
	r.create("s")
	first := r.node.epoch
	r.crash()
	r.config.bootID = "another boot"
	r.start()
	if len(r.states()) != 0 || r.node.epoch != first+1 {
		t.Errorf("inventory %v, epoch %d after %d", r.states(), r.node.epoch, first)
	}
	r.empty()
}

func TestBoxThatCannotBeOpenedIsInfrastructure(t *testing.T) {
	r := newRig(t)
	r.create("s")
	r.crash()
	c := r.config
	rt := fake.New(r.dir + "/boxes")
	rt.SetHooks(fake.Hooks{Open: func(context.Context, string) error { return errors.New("no descriptors") }})
	c.Runtimes = map[string]runtime.Runtime{fake.Name: rt}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.rt, r.node = rt, n
	r.event(BoxFailed)
	if e := errdefs.From(r.acquire("s")); e.Class != errdefs.Infrastructure {
		t.Errorf("acquire: %v", e)
	}
	r.destroy("s")
	r.empty()
}

func TestLeftoversThatResistKeepTheirPromise(t *testing.T) {
	r := newRig(t)
	r.create("s")
	r.crash()
	box := r.rt.IDs()[0]
	r.rt.Box(box).Kill()
	c := r.config
	rt := fake.New(r.dir + "/boxes")
	busy := true
	rt.SetHooks(fake.Hooks{Destroy: func(context.Context, string) error {
		if busy {
			return errors.New("busy")
		}
		return nil
	}})
	c.Runtimes = map[string]runtime.Runtime{fake.Name: rt}
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.rt, r.node = rt, n
	if err := n.Destroy(context.Background(), "s", "test"); err == nil {
		t.Error("a destroy without proof succeeded")
	}
	if n.Stats(context.Background()).MemPromised != 16*mib {
		t.Error("the promise was taken back")
	}
	busy = false
	r.destroy("s")
	r.empty()
}

func TestPatrolRemovesOrphans(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PatrolInterval = 10 * time.Millisecond })
	kept := r.create("s").Box
	if _, err := fake.New(r.dir+"/boxes").Create(context.Background(), runtime.Config{ID: "stranger"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stranger is removed", func() bool { return r.rt.Box("stranger") == nil })
	if r.rt.Box(kept) == nil {
		t.Error("patrol removed a live box")
	}
	eventually(t, "it is counted", func() bool { return r.node.Stats(context.Background()).OrphansRemoved == 1 })
}

func TestPatrolSparesBoxesInTheMaking(t *testing.T) {
	r := newRig(t, func(c *Config) { c.PatrolInterval = time.Millisecond })
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				s := fmt.Sprintf("s%d-%d", i, k)
				r.create(s)
				if err := r.acquire(s); err != nil {
					t.Errorf("acquire %s: %v", s, err)
				}
				r.destroy(s)
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	close(stop)
	wg.Wait()
	if st := r.node.Stats(context.Background()); st.OrphansRemoved != 0 {
		t.Errorf("%d orphans", st.OrphansRemoved)
	}
	r.empty()
}

func TestAdoptionIsFast(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Memory = 1 << 40; c.CPU = 1e6 })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 250 {
				r.create(fmt.Sprintf("s%d-%d", i, k))
			}
		})
	}
	wg.Wait()
	r.crash()
	began := time.Now()
	r.start()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("2,000 boxes were adopted in %v", took)
	}
	if len(r.states()) != 2000 {
		t.Errorf("%d sessions", len(r.states()))
	}
}

func TestSecretsAreNotJournaled(t *testing.T) {
	r := newRig(t)
	q := request("s")
	q.Claim.Env = []string{"TOKEN=hunter2"}
	q.Code = strings.NewReader("hunter2")
	if _, err := r.node.Create(context.Background(), q); err != nil {
		t.Fatal(err)
	}
	if journalHas(t, r.node, "hunter2") {
		t.Error("the journal has a secret")
	}
	if !journalHas(t, r.node, `"session":"s"`) {
		t.Error("the journal does not have the session")
	}
}

// A box that ended unasked stays the box's affair when the daemon is killed before its removal is done.
func TestCauseOutlivesTheDaemon(t *testing.T) {
	r := newRig(t)
	b := r.create("s")
	// What the journal holds between the loss and the proof that nothing is left.
	if err := r.node.journal.append(&record{Kind: recDestroying, Box: b.Box, Cause: BoxLost}); err != nil {
		t.Fatal(err)
	}
	r.crash()
	r.start()
	inv, err := r.node.Inventory(context.Background())
	if err != nil || len(inv) != 1 || inv[0].State != string(Lost) || inv[0].Cause != BoxLost {
		t.Errorf("inventory %+v, %v", inv, err)
	}
	r.destroy("s")
	r.empty()
}
