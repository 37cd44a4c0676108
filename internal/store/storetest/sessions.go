package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store"
)

var failure = &errdefs.Error{Class: errdefs.Policy, Reason: errdefs.BoxTampered, Scope: errdefs.ScopeBox, Object: "session x", Message: "the guest died", Remedy: "look"}

func roundTrip(t *testing.T, s *store.Store) {
	rec := Sample("p", 1)
	rec.Lifetime, rec.AtDeadline = time.Minute, session.ActStop
	insert(t, s, rec)
	apply(t, s, rec, session.Place{Node: "n"}, session.Start{Box: "b", Pooled: true, ColdReason: "c"},
		session.SetDeadline{At: Epoch.Add(time.Hour), Lifetime: 90 * time.Second, Then: session.ActSuspend}, session.Fail{Err: failure}, session.Reclaimed{})
	got, err := s.Get(t.Context(), rec.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, rec) {
		t.Fatalf("got  %+v\nwant %+v", got, rec)
	}
	if _, err := s.Get(t.Context(), "nobody"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
	if by, err := s.ByRequest(t.Context(), rec.Request); err != nil || len(by) != 1 || !reflect.DeepEqual(by[0], rec) {
		t.Fatalf("by request: %v %v", by, err)
	}
	listed, err := s.List(t.Context(), store.Filter{Project: "p"})
	if err != nil || len(listed) != 1 || !reflect.DeepEqual(listed[0], rec) {
		t.Fatalf("list: %v %v", listed, err)
	}
}

func compareAndSwap(t *testing.T, s *store.Store) {
	rec := Sample("p", 1)
	insert(t, s, rec)
	next, _, _ := session.Apply(rec.Row, session.Place{Node: "n"}, Epoch)
	if err := s.Update(t.Context(), "p", next, rec.Version+1); !errors.Is(err, errdefs.ErrConflict) {
		t.Fatalf("wrong version: %v", err)
	}
	if err := s.Update(t.Context(), "p", next, rec.Version); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), "p", next, rec.Version); !errors.Is(err, errdefs.ErrConflict) {
		t.Fatalf("second time: %v", err)
	}
}

func quota(t *testing.T, s *store.Store) {
	ensure(t, s, "small", 2)
	a, b, c := Sample("small", 1), Sample("small", 2), Sample("small", 3)
	refused, err := s.Insert(t.Context(), store.Insert{Project: "small", Sessions: []*store.Session{a, b, c}})
	if err != nil || refused[0] != nil || refused[1] != nil || refused[2] == nil || refused[2].Reason != errdefs.QuotaExceeded || refused[2].Class != errdefs.Limit {
		t.Fatalf("got %v %v", refused, err)
	}
	if _, err := s.Get(t.Context(), c.ID); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatalf("a refused session was stored: %v", err)
	}
	apply(t, s, a, session.Stop{})
	insert(t, s, c)
	if p, err := s.Project(t.Context(), "small"); err != nil || p.Live != 2 {
		t.Fatalf("project %+v %v", p, err)
	}
	if _, err := s.Insert(t.Context(), store.Insert{Project: "absent", Sessions: []*store.Session{Sample("absent", 9)}}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatalf("absent project: %v", err)
	}
}

func platformBound(t *testing.T, s *store.Store) {
	ensure(t, s, "other", 0)
	insert(t, s, Sample("other", 1))
	refused, err := s.Insert(t.Context(), store.Insert{Project: "p", MaxLive: 2, Sessions: []*store.Session{Sample("p", 2), Sample("p", 3)}})
	if err != nil || refused[0] != nil || refused[1] == nil || refused[1].Reason != errdefs.QueueFull {
		t.Fatalf("got %v %v", refused, err)
	}
}

func insertIsOneTransaction(t *testing.T, s *store.Store) {
	a := Sample("p", 1)
	if _, err := s.Insert(t.Context(), store.Insert{Project: "p", Sessions: []*store.Session{a, Sample("p", 2), a}}); err == nil {
		t.Fatal("the same id was stored twice")
	}
	live, err := s.Live(t.Context())
	if err != nil || len(live) != 0 {
		t.Fatalf("left: %v %v", live, err)
	}
	if p, err := s.Project(t.Context(), "p"); err != nil || p.Live != 0 {
		t.Fatalf("quota left: %+v %v", p, err)
	}
}

func deleteEnded(t *testing.T, s *store.Store) {
	rec := Sample("p", 1)
	insert(t, s, rec)
	if err := s.Delete(t.Context(), rec.ID); !errors.Is(err, errdefs.ErrConflict) {
		t.Fatalf("a live session: %v", err)
	}
	byLabel := store.Filter{Project: "p", Labels: rec.Labels}
	if got, err := s.List(t.Context(), byLabel); err != nil || len(got) != 1 {
		t.Fatalf("the refused deletion took the labels: %v %v", got, err)
	}
	apply(t, s, rec, session.Stop{})
	for range 2 {
		if err := s.Delete(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.List(t.Context(), byLabel); err != nil || len(got) != 0 {
		t.Fatalf("left: %v %v", got, err)
	}
}

func listFilters(t *testing.T, s *store.Store) {
	ensure(t, s, "other", 0)
	insert(t, s, Sample("other", 99))
	for n := range 10 {
		rec := Sample("p", n)
		if n >= 6 {
			rec.Job = ""
		}
		insert(t, s, rec)
		if n >= 8 {
			apply(t, s, rec, session.Stop{})
		} else if n >= 4 {
			apply(t, s, rec, session.Place{Node: "n"})
		}
	}
	for _, c := range []struct {
		name string
		f    store.Filter
		want []int
	}{
		{"all", store.Filter{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"phase", store.Filter{Phases: []session.Phase{session.Scheduled}}, []int{4, 5, 6, 7}},
		{"phases, newest", store.Filter{Phases: []session.Phase{session.Scheduled, session.Failed}, Newest: true}, []int{9, 8, 7, 6, 5, 4}},
		{"job", store.Filter{Job: "job"}, []int{0, 1, 2, 3, 4, 5}},
		{"label", store.Filter{Labels: map[string]string{"parity": "odd"}}, []int{1, 3, 5, 7, 9}},
		{"labels", store.Filter{Labels: map[string]string{"parity": "odd", "n": "3"}}, []int{3}},
		{"no such label", store.Filter{Labels: map[string]string{"n": "' or 1=1 --"}}, nil},
		{"everything", store.Filter{Phases: []session.Phase{session.Pending, session.Scheduled}, Job: "job", Labels: map[string]string{"parity": "even"}, After: Sample("p", 0).ID, Limit: 2}, []int{2, 4}},
	} {
		c.f.Project = "p"
		got, err := s.List(t.Context(), c.f)
		if err != nil {
			t.Fatal(err)
		}
		var ns []string
		for _, g := range got {
			ns = append(ns, g.Labels["n"])
		}
		if fmt.Sprint(ns) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, want %v", c.name, ns, c.want)
		}
	}
	if live, err := s.Live(t.Context()); err != nil || len(live) != 9 {
		t.Fatalf("live: %d %v", len(live), err)
	}
}

func listPages(t *testing.T, s *store.Store) {
	for n := range 25 {
		insert(t, s, Sample("p", n))
	}
	for _, newest := range []bool{false, true} {
		var seen []string
		for after := ""; ; {
			page, err := s.List(t.Context(), store.Filter{Project: "p", Limit: 10, After: after, Newest: newest})
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			for _, r := range page {
				seen = append(seen, r.ID)
			}
			after = page[len(page)-1].ID
		}
		if len(seen) != 25 {
			t.Fatalf("newest %v: %d seen", newest, len(seen))
		}
		for i := 1; i < len(seen); i++ {
			if (seen[i-1] < seen[i]) == newest {
				t.Fatalf("newest %v: %s before %s", newest, seen[i-1], seen[i])
			}
		}
	}
}

func expiry(t *testing.T, s *store.Store) {
	var all []*store.Session
	for i := range 5 {
		rec := Sample("p", i+1)
		insert(t, s, rec)
		all = append(all, rec)
	}
	for _, rec := range all[:4] {
		apply(t, s, rec, session.Stop{Reason: "x"})
	}
	if n, err := s.ExpireSessions(t.Context(), all[0].Ended.Add(-time.Second), 10); err != nil || n != 0 {
		t.Fatalf("too early: %d %v", n, err)
	}
	for _, want := range []int64{3, 1, 0} {
		if n, err := s.ExpireSessions(t.Context(), all[0].Ended.Add(time.Hour), 3); err != nil || n != want {
			t.Fatalf("expired %d, want %d: %v", n, want, err)
		}
	}
	if left, err := s.List(t.Context(), store.Filter{Project: "p"}); err != nil || len(left) != 1 || left[0].ID != all[4].ID {
		t.Fatalf("left %v %v", left, err)
	}
}
