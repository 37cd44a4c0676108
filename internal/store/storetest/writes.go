package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store"
)

// orderOfWrites: what is handed over without waiting is carried out in order.
func orderOfWrites(t *testing.T, s *store.Store) {
	rec := Sample("p", 1)
	insert(t, s, rec)
	row := rec.Row
	for _, ev := range []session.Event{session.Place{Node: "n"}, session.Start{Box: "b"}, session.Suspend{}, session.Frozen{}, session.Resume{}, session.Thawed{}} {
		next, _, err := session.Apply(row, ev, Epoch)
		if err != nil {
			t.Fatal(err)
		}
		s.UpdateBehind("p", next, row.Version, func(err error) {
			if err != nil {
				t.Errorf("%T: %v", ev, err)
			}
		})
		row = next
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), rec.ID); err != nil || got.Version != row.Version || got.Phase != session.Running {
		t.Fatalf("got %+v %v", got, err)
	}
}

func concurrentWriters(t *testing.T, s *store.Store) {
	ensure(t, s, "small", 150)
	const writers, each = 20, 10
	var wg sync.WaitGroup
	var mu sync.Mutex
	stored := 0
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				refused, err := s.Insert(t.Context(), store.Insert{Project: "small", Sessions: []*store.Session{Sample("small", w*each+i)}})
				if err != nil {
					t.Error(err)
					return
				}
				if refused[0] == nil {
					mu.Lock()
					stored++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	live, err := s.Live(t.Context())
	if err != nil || stored != 150 || len(live) != 150 {
		t.Fatalf("stored %d, live %d, %v", stored, len(live), err)
	}
}

// oneFailureSpoilsNoOther: writes that share a transaction fail alone.
func oneFailureSpoilsNoOther(t *testing.T, s *store.Store) {
	taken := Sample("p", 0)
	insert(t, s, taken)
	var wg sync.WaitGroup
	for n := 1; n <= 100; n++ {
		wg.Go(func() {
			rec := Sample("p", n)
			bad := n%3 == 0
			if bad {
				rec.ID = taken.ID
			}
			_, err := s.Insert(t.Context(), store.Insert{Project: "p", Sessions: []*store.Session{rec}})
			if (err != nil) != bad {
				t.Errorf("%d: %v", n, err)
			}
			if bad && reason(err) != errdefs.Unavailable {
				t.Errorf("%d: %v", n, err)
			}
		})
	}
	wg.Wait()
	live, err := s.Live(t.Context())
	if p, perr := s.Project(t.Context(), "p"); err != nil || perr != nil || len(live) != 68 || p.Live != 68 {
		t.Fatalf("live %d, %+v, %v %v", len(live), p, err, perr)
	}
}

func cancelledBefore(t *testing.T, s *store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Insert(ctx, store.Insert{Project: "p", Sessions: []*store.Session{Sample("p", 1)}}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if live, err := s.Live(t.Context()); err != nil || len(live) != 0 {
		t.Fatalf("left: %v %v", live, err)
	}
}
