package build

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/template"
)

// slow is an importer whose imports wait for their end, and then are as the store's own.
type slow struct {
	*template.Local
	begun chan string
}

func (s slow) Import(ctx context.Context, q template.ImportRequest) (*template.Template, error) {
	s.begun <- q.Name
	<-ctx.Done()
	time.Sleep(10 * time.Millisecond) // as a box that must end first
	return nil, ctx.Err()
}

// TestDeletionAgainstBuilds: builds that run, that begin and that are cancelled while their template is deleted leave nothing.
func TestDeletionAgainstBuilds(t *testing.T) {
	dir := t.TempDir()
	templates, err := template.Open(dir, template.Options{})
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan string, 100)
	s, err := Open(Config{Dir: filepath.Join(dir, "builds"), Templates: templates, Importer: slow{templates, begun}, Running: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	recipe := Recipe{Image: "docker.io/library/x:1", Asked: []byte("x")}
	for range 20 {
		tpl, first, err := s.Request(t.Context(), "p", Request{Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context(), "p", tpl.ID, first.ID, recipe); err != nil {
			t.Fatal(err)
		}
		<-begun
		_, second, err := s.Request(t.Context(), "p", Request{Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var again *Template
		wg.Go(func() {
			if err := s.Delete(t.Context(), "p", "a"); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() { // a build that begins at the same time is cancelled with the others, or refused
			if err := s.Start(t.Context(), "p", tpl.ID, second.ID, recipe); err != nil && !errors.Is(err, errdefs.ErrConflict) && !errors.Is(err, errdefs.ErrNotFound) {
				t.Error(err)
			}
		})
		wg.Go(func() { _ = s.Cancel("p", tpl.ID, second.ID) })
		wg.Go(func() {
			var err error
			if again, _, err = s.Request(t.Context(), "p", Request{Name: "a"}); err != nil && !errors.Is(err, errdefs.ErrConflict) {
				t.Error(err)
			}
		})
		wg.Wait()
		s.mu.Lock()
		for _, b := range s.builds {
			if b.Template == tpl.ID {
				t.Errorf("build %s of a deleted template is %s", b.ID, b.Status)
			}
		}
		if s.templates[tpl.ID] != nil || len(s.leaving) > 0 {
			t.Error("the template is still there")
		}
		s.mu.Unlock()
		if again != nil && again.ID != tpl.ID { // asked for after the deletion: another template
			if err := s.Delete(t.Context(), "p", "a"); err != nil {
				t.Error(err)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "builds", "*", "*.json")); len(left) > 0 {
		t.Errorf("records are left: %v", left)
	}
}
