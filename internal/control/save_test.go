package control

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store"
)

// A repair that read a row before it ended must not bring it back to life.
func TestSaveKeepsNewerRows(t *testing.T) {
	ctx := t.Context()
	s, err := store.Open(ctx, filepath.Join(t.TempDir(), "dsec.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	now := time.Now()
	if _, err := s.EnsureProject(ctx, store.Project{ID: DefaultProject, Created: now}); err != nil {
		t.Fatal(err)
	}
	c := New(Config{Store: s})
	rec := store.Session{Row: session.New(session.NewID(now, [9]byte{}), now), Project: DefaultProject, Request: "r"}
	if _, err := s.Insert(ctx, store.Insert{Project: DefaultProject, Sessions: []*store.Session{&rec}}); err != nil {
		t.Fatal(err)
	}
	l := newLive(ctx, rec)
	defer l.stopMaking()
	old, _, _ := session.Apply(rec.Row, session.Place{Node: "n"}, now)
	ended, _, _ := session.Apply(rec.Row, session.Stop{}, now)
	ended.Version++ // it has gone through more than old
	for _, row := range []session.Row{ended, old} {
		if err := c.save(ctx, l, row); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Get(ctx, rec.ID)
	if err != nil || got.Phase != session.Failed {
		t.Errorf("%+v %v", got, err)
	}
	if p, err := s.Project(ctx, DefaultProject); err != nil || p.Live != 0 {
		t.Errorf("%+v %v", p, err)
	}
}
