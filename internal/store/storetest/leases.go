package storetest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/store"
)

func leases(t *testing.T, s *store.Store) {
	ctx := t.Context()
	a := store.Lease{ID: "la", Project: "p", Key: "k", TTL: 1500 * time.Millisecond, OnExpiry: "stop", Created: Epoch}
	b := store.Lease{ID: "lb", Project: "p", TTL: time.Minute, OnExpiry: "suspend", Created: Epoch}
	for _, l := range []store.Lease{a, b, {ID: "lc", Project: "p", TTL: time.Minute, OnExpiry: "stop", Created: Epoch}} { // two without a key
		if err := s.AddLease(ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.AddLease(ctx, store.Lease{ID: "ld", Project: "p", Key: "k", Created: Epoch}); !errors.Is(err, store.ErrLeaseTaken) {
		t.Fatalf("second lease with a key: %v", err)
	}
	if err := s.AddLease(ctx, store.Lease{ID: "le", Project: "absent", Created: Epoch}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatalf("absent project: %v", err)
	}
	if got, err := s.LeaseByKey(ctx, "p", "k"); err != nil || !reflect.DeepEqual(*got, a) {
		t.Fatalf("by key: %+v %v", got, err)
	}
	for _, key := range []string{"", "other"} {
		if _, err := s.LeaseByKey(ctx, "p", key); !errors.Is(err, errdefs.ErrNotFound) {
			t.Fatalf("key %q: %v", key, err)
		}
	}
	if err := s.EndLease(ctx, "lb", "expired", Epoch.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if live, err := s.LiveLeases(ctx); err != nil || len(live) != 2 || live[0].ID != "la" || live[1].ID != "lc" {
		t.Fatalf("live: %v %v", live, err)
	}
	if err := s.EndLease(ctx, "lb", "", Epoch.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Lease(ctx, "lb"); err != nil || !reflect.DeepEqual(*got, b) {
		t.Fatalf("revived: %+v %v", got, err)
	}
	if err := s.EndLease(ctx, "nobody", "released", Epoch); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
	// An ended lease is kept as long as a session on record names it.
	rec := Sample("p", 1)
	rec.Lease = "la"
	insert(t, s, rec)
	for _, id := range []string{"la", "lc"} {
		if err := s.EndLease(ctx, id, "released", Epoch); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.ExpireLeases(ctx, Epoch); err != nil || n != 1 {
		t.Fatalf("%d forgotten, %v", n, err)
	}
	if _, err := s.Lease(ctx, "la"); err != nil {
		t.Fatal(err)
	}
	insert(t, s, Sample("p", 2))
	if got, err := s.List(ctx, store.Filter{Project: "p", Lease: "la"}); err != nil || len(got) != 1 || got[0].ID != rec.ID {
		t.Fatalf("list: %v %v", got, err)
	}
}
