// Package storetest is the conformance suite of the store: every database engine
// passes it.
package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store"
)

// Epoch is the time at which the suite's sessions begin.
var Epoch = time.Unix(1_800_000_000, 0)

// Run runs the suite. open gives an empty database, closed by the suite; reopen
// opens the same one again after that.
func Run(t *testing.T, open func(t *testing.T) (s *store.Store, reopen func() *store.Store)) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *store.Store)
	}{
		{"RoundTrip", roundTrip},
		{"CompareAndSwap", compareAndSwap},
		{"Quota", quota},
		{"Expiry", expiry},
		{"PlatformBound", platformBound},
		{"InsertIsOneTransaction", insertIsOneTransaction},
		{"Delete", deleteEnded},
		{"ListFilters", listFilters},
		{"ListPages", listPages},
		{"IdempotencyKeys", idempotencyKeys},
		{"Leases", leases},
		{"Projects", projects},
		{"APIKeys", apiKeys},
		{"OrderOfWrites", orderOfWrites},
		{"ConcurrentWriters", concurrentWriters},
		{"OneFailureSpoilsNoOther", oneFailureSpoilsNoOther},
		{"CancelledBeforeItBegan", cancelledBefore},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := open(t)
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			ensure(t, s, "p", 0)
			c.run(t, s)
		})
	}
	t.Run("Reopen", func(t *testing.T) {
		s, reopen := open(t)
		ensure(t, s, "p", 0)
		insert(t, s, Sample("p", 1))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Insert(t.Context(), store.Insert{Project: "p", Sessions: []*store.Session{Sample("p", 2)}}); err == nil {
			t.Fatal("a closed store took a write")
		}
		s = reopen()
		defer s.Close()
		if _, err := s.Get(t.Context(), Sample("p", 1).ID); err != nil {
			t.Fatal(err)
		}
	})
}

// Sample is the n-th session of a project, as it is stored at first.
func Sample(project string, n int) *store.Session {
	at := Epoch.Add(time.Duration(n) * time.Microsecond)
	row := session.New(session.NewID(at, [9]byte{8: byte(n)}), at)
	no := false
	return &store.Session{
		Row: row, Project: project, Job: "job", Template: "base@0123456789ab", Priority: "normal",
		Request: fmt.Sprintf("request-%s-%d", project, n), Ordinal: 0, Payload: true, Detached: true,
		Spec:   spec.Sandbox{Runtime: "native", CPULimit: 1.5, MemLimit: 16 << 20, FS: spec.FS{RootFS: spec.RootFS{ReadOnly: &no}, WritableDirs: []string{"/workspace"}}},
		Labels: map[string]string{"n": fmt.Sprint(n), "parity": []string{"even", "odd"}[n%2]},
		Env:    map[string]string{"A": "ü\x00"},
		Lease:  "l",
	}
}

func ensure(t *testing.T, s *store.Store, id string, maxLive int64) {
	t.Helper()
	if made, err := s.EnsureProject(t.Context(), store.Project{ID: id, MaxLive: maxLive, Created: Epoch}); err != nil || !made {
		t.Fatalf("project %s: made %v, %v", id, made, err)
	}
}

func insert(t *testing.T, s *store.Store, recs ...*store.Session) {
	t.Helper()
	for _, rec := range recs {
		refused, err := s.Insert(t.Context(), store.Insert{Project: rec.Project, Sessions: []*store.Session{rec}})
		if err != nil {
			t.Fatal(err)
		}
		if refused[0] != nil {
			t.Fatal(refused[0])
		}
	}
}

// apply stores what ev makes of rec.
func apply(t *testing.T, s *store.Store, rec *store.Session, evs ...session.Event) {
	t.Helper()
	for _, ev := range evs {
		next, _, err := session.Apply(rec.Row, ev, rec.Updated.Add(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Update(t.Context(), rec.Project, next, rec.Version); err != nil {
			t.Fatal(err)
		}
		rec.Row = next
	}
}

func reason(err error) errdefs.Reason {
	if err == nil {
		return ""
	}
	return errdefs.From(err).Reason
}
