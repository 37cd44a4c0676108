package storetest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/store"
)

func idempotencyKeys(t *testing.T, s *store.Store) {
	const window = 24 * time.Hour
	claim := func(n int, at time.Time) error {
		rec := Sample("p", n)
		_, err := s.Insert(t.Context(), store.Insert{Project: "p", Sessions: []*store.Session{rec},
			Key: &store.Key{Key: "k", Digest: "d", Request: rec.Request, Count: 3, Created: at, Window: window}})
		return err
	}
	if _, err := s.LookupKey(t.Context(), "p", "k", Epoch.Add(-window)); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
	if err := claim(1, Epoch); err != nil {
		t.Fatal(err)
	}
	if err := claim(2, Epoch.Add(window-time.Second)); !errors.Is(err, store.ErrKeyTaken) {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), Sample("p", 2).ID); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal("a session was stored although its key was taken")
	}
	k, err := s.LookupKey(t.Context(), "p", "k", Epoch.Add(-time.Second))
	if err != nil || k.Digest != "d" || k.Count != 3 || k.Request != Sample("p", 1).Request || !k.Created.Equal(Epoch) {
		t.Fatalf("got %+v %v", k, err)
	}
	if _, err := s.LookupKey(t.Context(), "p", "k", Epoch); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatalf("an old key stands: %v", err)
	}
	if _, err := s.LookupKey(t.Context(), "other", "k", time.Time{}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatalf("another project's key stands: %v", err)
	}
	if err := claim(2, Epoch.Add(window)); err != nil {
		t.Fatalf("an old key did not give way: %v", err)
	}
	if n, err := s.ExpireKeys(t.Context(), Epoch.Add(window)); err != nil || n != 1 {
		t.Fatalf("expired %d %v", n, err)
	}
}

func projects(t *testing.T, s *store.Store) {
	ensure(t, s, "q", 7)
	if made, err := s.EnsureProject(t.Context(), store.Project{ID: "q", MaxLive: 9, Created: Epoch}); made || err != nil {
		t.Fatalf("made again: %v %v", made, err)
	}
	if p, err := s.Project(t.Context(), "q"); err != nil || p.MaxLive != 7 || !p.Created.Equal(Epoch) {
		t.Fatalf("got %+v %v", p, err)
	}
	if err := s.SetQuota(t.Context(), "q", 1); err != nil {
		t.Fatal(err)
	}
	ps, err := s.Projects(t.Context())
	if err != nil || len(ps) != 2 || ps[0].ID != "p" || ps[1].MaxLive != 1 {
		t.Fatalf("got %v %v", ps, err)
	}
	if err := s.SetQuota(t.Context(), "absent", 1); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
}

func apiKeys(t *testing.T, s *store.Store) {
	hash := []byte("hash\x00one")
	if err := s.AddKey(t.Context(), store.APIKey{ID: "1", Project: "p", Name: "first", Hash: hash, Hint: "e2b_12", Created: Epoch}); err != nil {
		t.Fatal(err)
	}
	if err := s.AddKey(t.Context(), store.APIKey{ID: "2", Project: "p", Hash: hash}); err == nil {
		t.Fatal("the same hash was stored twice")
	}
	if err := s.AddKey(t.Context(), store.APIKey{ID: "3", Project: "absent", Hash: []byte("x")}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := s.RevokeKey(t.Context(), "9", Epoch); !errors.Is(err, errdefs.ErrNotFound) {
		t.Fatal(err)
	}
	for _, at := range []time.Time{Epoch.Add(time.Hour), Epoch.Add(2 * time.Hour)} {
		if k, err := s.RevokeKey(t.Context(), "1", at); err != nil || !k.Revoked.Equal(Epoch.Add(time.Hour)) {
			t.Fatalf("got %+v %v", k, err)
		}
	}
	ks, err := s.Keys(t.Context())
	if err != nil || len(ks) != 1 {
		t.Fatalf("got %v %v", ks, err)
	}
	if k := ks[0]; k.ID != "1" || k.Project != "p" || k.Name != "first" || !bytes.Equal(k.Hash, hash) || k.Hint != "e2b_12" || k.Revoked.IsZero() {
		t.Fatalf("got %+v", k)
	}
}
