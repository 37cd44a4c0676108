package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/spec"
)

var errCrash = errors.New("the daemon is killed")

// Whatever the node was doing when it was killed (at every append to its journal, before and
// thus after every act), the next one keeps what was acknowledged, removes the rest, and owes nothing.
func TestCrashAtEveryRecord(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		at := rapid.Int64Range(0, 40).Draw(rt, "append")
		pool := rapid.IntRange(0, 2).Draw(rt, "pool")
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"create", "destroy", "suspend", "resume", "kill"}), 1, 25).Draw(rt, "steps")
		crashProperty(t, rt, at, pool, steps)
	})
}

func crashProperty(t *testing.T, rt *rapid.T, at int64, pool int, steps []string) {
	// A subtest's rig: rapid runs this many times, each on a machine of its own.
	r := newRig(t, withPool(spec.Pool{MinIdle: pool, MaxIdle: pool}))
	defer func() { _ = r.node.Close() }()
	var once sync.Once
	r.node.journal.mu.Lock()
	first := r.node.journal.appends.Load()
	sever := r.rt.Sever
	r.node.journal.before = func(n int64) error {
		if n-first < at {
			return nil
		}
		once.Do(sever)
		return errCrash
	}
	r.node.journal.mu.Unlock()

	ctx := context.Background()
	acked := map[string]State{}   // what callers were told
	unsure := map[string]bool{}   // calls that were under way
	killed := map[string]string{} // session → what ended it
	for i, step := range steps {
		live := slices.Sorted(maps.Keys(acked))
		target := ""
		if len(live) > 0 {
			target = live[i%len(live)]
		}
		var err error
		switch {
		case step == "create":
			target = fmt.Sprintf("s%d", i)
			if _, err = r.node.Create(ctx, request(target)); err == nil {
				acked[target] = Live
			}
		case target == "":
			continue
		case step == "destroy":
			if err = r.node.Destroy(ctx, target, "test"); err == nil {
				delete(acked, target)
			}
		case step == "suspend" && acked[target] == Live:
			if err = r.node.Suspend(ctx, target); err == nil {
				acked[target] = Suspended
			}
		case step == "resume" && acked[target] == Suspended:
			if err = r.node.Resume(ctx, target); err == nil {
				acked[target] = Live
			}
		case step == "kill" && killed[target] == "":
			if b, berr := r.node.Inspect(ctx, target); berr == nil && r.rt.Box(b.Box) != nil {
				r.rt.Box(b.Box).Kill()
				killed[target] = b.Box
				acked[target] = Lost
			}
		}
		if err != nil {
			unsure[target] = true
		}
		if r.node.journal.appends.Load()-first >= at {
			break
		}
	}
	r.crash()
	r.start()

	states := r.states()
	for s, want := range acked {
		got, ok := states[s]
		if !unsure[s] && (!ok || got != want) {
			rt.Errorf("session %s is %q after the restart, was acknowledged as %q", s, got, want)
		}
	}
	list, err := r.node.Inventory(ctx)
	if err != nil {
		rt.Fatal(err)
	}
	for _, i := range list {
		if b := r.rt.Box(i.Box); b != nil && i.State != string(Destroying) && b.Frozen() != (i.State == string(Suspended)) {
			rt.Errorf("session %s is %s, and frozen: %v", i.Session, i.State, b.Frozen())
		}
	}
	for s := range states {
		if _, ok := acked[s]; !ok && !unsure[s] {
			rt.Errorf("session %s came from nowhere", s)
		}
	}
	if n, known := len(r.rt.IDs()), len(r.node.all(nil)); n > known+r.config.RefillConcurrency {
		rt.Errorf("%d boxes exist, %d are known", n, known)
	}
	for s := range states {
		if err := r.node.Destroy(ctx, s, "test"); err != nil {
			rt.Errorf("destroy %s: %v", s, err)
		}
	}
	r.node.SetDraining(true)
	eventually(t, "nothing is left", func() bool {
		st := r.node.Stats(ctx)
		return len(r.rt.IDs()) == 0 && st.MemPromised == 0 && st.Boxes == 0
	})
}
