package control_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
)

// TestServerStopsWhileOwnersSessionsAreSuspended: those that it has not come to are suspended by
// the next server, and lost by none.
func TestServerStopsWhileOwnersSessionsAreSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 500, spec.Scheduler{})
		defer w.end()
		id := w.lease(10*time.Second, control.SuspendSessions)
		mine := w.create(owned(200, id))
		w.node.mu.Lock()
		w.node.onSuspend = func(string) error { time.Sleep(time.Second); return nil }
		w.node.mu.Unlock()
		time.Sleep(11500 * time.Millisecond)
		w.restart()
		count := func() map[string]int {
			phases := map[string]int{}
			for _, r := range mine {
				phases[w.get(r.Session.ID).Phase]++
			}
			return phases
		}
		if got := count(); got["SUSPENDED"] == 0 || got["RUNNING"] == 0 || got["SUSPENDED"]+got["RUNNING"] != len(mine) {
			t.Fatalf("after a restart in the middle: %v", got)
		}
		time.Sleep(5 * time.Minute)
		if got := count(); got["SUSPENDED"] != len(mine) {
			t.Fatalf("the next server: %v", got)
		}
	})
}

// TestLeaseRevivedByManyAtOnce: every sign of life is heard, one of them revives, and a release
// beside them is the end.
func TestLeaseRevivedByManyAtOnce(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	for range 20 {
		id := w.lease(20*time.Millisecond, control.SuspendSessions)
		s := w.create(owned(1, id))[0]
		eventually(t, "it expires", func() bool {
			l, err := w.GetLease(t.Context(), project, id)
			return err == nil && l.Ending != ""
		})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := w.RenewLease(context.Background(), project, id); err != nil && errdefs.From(err).Reason != errdefs.Conflict {
					t.Errorf("a sign of life: %v", err)
				}
			})
		}
		wg.Go(func() {
			if _, err := w.ReleaseLease(context.Background(), project, id, false); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if l, err := w.GetLease(t.Context(), project, id); err != nil || l.Ending != "released" || l.Sessions != 0 {
			t.Fatalf("after its release: %+v, %v; its session %+v", l, err, s)
		}
	}
}
