package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/fake"
	"github.com/dsec-platform/dsec/internal/spec"
)

func withSpares(want int) func(*Config) { return func(c *Config) { c.Spares = want } }

// begun lists the boxes of the machine that are begun and no more.
func (r *rig) begun() []string {
	var ids []string
	for _, id := range r.rt.IDs() {
		if b := r.rt.Box(id); b != nil && b.Begun() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// spares waits in virtual time until everything rests, and asserts how many spares there are.
func (r *rig) spares(want int) []string {
	r.t.Helper()
	time.Sleep(2 * spareQuiet)
	synctest.Wait()
	got := r.begun()
	if len(got) != want || r.node.spares.count() != want {
		r.t.Fatalf("begun are %v, in the books %d, want %d", got, r.node.spares.count(), want)
	}
	return got
}

// inBubble runs a test on a rig in virtual time, and wants nothing left at its end.
func inBubble(t *testing.T, fn func(t *testing.T, r *rig), change ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change...)
		fn(t, r)
		if err := r.node.Close(); err != nil {
			t.Error(err)
		}
		r.empty()
	})
}

// Spares are begun ahead, promise nothing, serve whoever asks, and are replaced.
func TestSparesServeCreates(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ids := r.spares(3)
		if st := r.node.Stats(t.Context()); st.MemPromised != 0 || st.Boxes != 0 {
			t.Errorf("spares are promised or counted: %+v", st)
		}
		box := r.create("s").Box
		if !slices.Contains(ids, box) {
			t.Errorf("box %s was made anew, begun were %v", box, ids)
		}
		if got := r.rt.Box(box).Config(); got.Limits.Memory != 16*mib || got.Root.Template != "base@1" {
			t.Errorf("it was not made what was asked for: %+v", got)
		}
		if now := r.spares(3); slices.Contains(now, box) {
			t.Errorf("box %s is given away and a spare: %v", box, now)
		}
		r.node.patrol()
		r.spares(3) // a patrol leaves them alone
		r.destroy("s")
	}, withSpares(3))
}

// After a create the spares are left alone for a while, unless a box goes away meanwhile: its
// first op needs the processors.
func TestSparesWaitForALull(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.create("first")
		r.spares(4)
		r.destroy("first") // before the next create: no reason to hurry after that
		r.create("second")
		synctest.Wait()
		if n := r.node.spares.count(); n != 3 {
			t.Errorf("%d spares right after a create, want 3", n)
		}
		r.destroy("second")
		synctest.Wait()
		if n := r.node.spares.count(); n != 4 {
			t.Errorf("%d spares when a box went away, want 4", n)
		}
	}, withSpares(4))
}

// When more is asked for than there is, boxes are made from the start; none is given twice.
func TestSparesUsedUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.spares(2)
		hold := make(chan struct{})
		r.rt.SetHooks(fake.Hooks{Create: func(context.Context, runtime.Config) error { <-hold; return nil }})
		var wg sync.WaitGroup
		boxes := make([]string, 6)
		for i := range boxes {
			wg.Go(func() { boxes[i] = r.create(fmt.Sprint("s", i)).Box })
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		if n := len(r.begun()); n > 2 {
			t.Errorf("%d boxes were begun ahead while others waited", n)
		}
		close(hold)
		wg.Wait()
		slices.Sort(boxes)
		if len(slices.Compact(boxes)) != 6 {
			t.Errorf("one box for several: %v", boxes)
		}
		r.spares(2)
		for i := range boxes {
			r.destroy(fmt.Sprint("s", i))
		}
	}, withSpares(2), func(c *Config) { c.CreateConcurrency = 3 })
}

// What cannot be begun costs no create anything, leaves nothing, and is tried again.
func TestSparesCannotBeMade(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.spares(2)
		tries := 0
		broken := errors.New("no cgroup can be made")
		r.rt.SetHooks(fake.Hooks{Prepare: func(context.Context, string) error { tries++; return broken }})
		for i := range 4 {
			r.create(fmt.Sprint("s", i))
		}
		time.Sleep(10 * spareRetry)
		synctest.Wait()
		if tries < 2 || tries > 12 {
			t.Errorf("%d tries in %v", tries, 10*spareRetry)
		}
		r.node.mu.RLock()
		books := len(r.node.boxes)
		r.node.mu.RUnlock()
		if books != 4 || len(r.begun()) != 0 {
			t.Errorf("in the books are %d boxes, begun %v", books, r.begun())
		}
		r.rt.SetHooks(fake.Hooks{})
		time.Sleep(2 * spareRetry)
		r.spares(2)
		for i := range 4 {
			r.destroy(fmt.Sprint("s", i))
		}
	}, withSpares(2))
}

// A create that fails with its spare is made with another box, or leaves nothing of either.
func TestSpareFailsInCreate(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		times int
		ok    bool
	}{
		"well again":   {errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "spawner", "it died"), 1, true},
		"still broken": {errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "spawner", "it died"), 2, false},
		"refused":      {errdefs.Userf(errdefs.InvalidArgument, "field user", "name another", "there is none"), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				before := r.spares(2)
				failures := tc.times
				r.rt.SetHooks(fake.Hooks{Create: func(context.Context, runtime.Config) error {
					if failures--; failures >= 0 {
						return tc.err
					}
					return nil
				}})
				b, err := r.node.Create(t.Context(), request("s"))
				if (err == nil) != tc.ok {
					t.Fatalf("got %v", err)
				}
				after := r.spares(2)
				if len(r.rt.IDs()) > 3 || slices.Equal(before, after) {
					t.Errorf("before %v, after %v, on the machine %v", before, after, r.rt.IDs())
				}
				if tc.ok && r.rt.Box(b.Box).Begun() {
					t.Error("it has a begun box")
				}
				r.destroy("s")
			}, withSpares(2))
		})
	}
}

// A drain gives the spares back, its end makes new ones.
func TestSparesAndDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.spares(3)
		r.node.SetDraining(true)
		r.spares(0)
		if ids := r.rt.IDs(); len(ids) != 0 {
			t.Errorf("left: %v", ids)
		}
		r.node.SetDraining(false)
		r.spares(3)
	}, withSpares(3))
}

// Spares do not outlive the daemon: the next one removes those of one that was killed, keeps what is
// bound, also from a spare, and begins its own. They are no orphans.
func TestSparesAfterARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		before := r.spares(3)
		box := r.create("s").Box
		before = append(before, r.spares(3)...)
		r.crash()
		r.start()
		for _, id := range r.spares(3) {
			if slices.Contains(before, id) {
				t.Errorf("spare %s is of the earlier daemon", id)
			}
		}
		if ids := r.rt.IDs(); len(ids) != 4 || r.states()["s"] != Live || r.rt.Box(box) == nil {
			t.Errorf("on the machine %v, states %v", ids, r.states())
		}
		if st := r.node.Stats(t.Context()); st.OrphansRemoved != 0 {
			t.Errorf("%d orphans", st.OrphansRemoved)
		}
		if err := r.node.Close(); err != nil {
			t.Error(err)
		}
		if ids := r.rt.IDs(); !slices.Equal(ids, []string{box}) {
			t.Errorf("a daemon that stops leaves %v", ids)
		}
		r.start()
		r.destroy("s")
	}, withSpares(3))
}

// The pool makes its boxes itself: spares are for those who wait.
func TestThePoolTakesNoSpares(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		before := r.spares(2)
		r.create("s")
		time.Sleep(time.Minute)
		synctest.Wait()
		if st := r.node.Stats(t.Context()); st.Pooled == 0 {
			t.Fatalf("the pool is empty: %+v", st)
		}
		after := r.spares(2)
		if common := len(before) - 1; common != 1 || !slices.ContainsFunc(before, func(id string) bool { return slices.Contains(after, id) }) {
			t.Errorf("before %v, after %v", before, after)
		}
		r.destroy("s")
		r.node.SetDraining(true) // which empties the pool
		time.Sleep(time.Minute)
		synctest.Wait()
	}, withSpares(2), withPool(spec.Pool{MinIdle: 2, MaxIdle: 2}))
}

// Take gives the youngest spare of a runtime, and none of another's.
func TestTakeSpare(t *testing.T) {
	one, other := fake.New(t.TempDir()), fake.New(t.TempDir())
	s := newSpares(4)
	if s.take(one) != nil {
		t.Error("there is none")
	}
	s.add(&box{id: "a", rt: one})
	s.add(&box{id: "b", rt: one})
	if s.take(other) != nil {
		t.Error("a spare of another runtime was given")
	}
	if b := s.take(one); b == nil || b.id != "b" || s.count() != 1 {
		t.Errorf("got %+v", b)
	}
	if newSpares(-3).want != 0 {
		t.Error("less than none are wanted")
	}
}
