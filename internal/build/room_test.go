package build

import (
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/template"
)

// TestUploadsTogetherKeepToTheRoom: archives that are sent at the same time take no more than those that come one after the other.
func TestUploadsTogetherKeepToTheRoom(t *testing.T) {
	dir := t.TempDir()
	templates, err := template.Open(dir, template.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Dir: filepath.Join(dir, "builds"), Templates: templates, Importer: templates, MaxUpload: 60_000, MaxUploads: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	hash := func(c string) string { return strings.Repeat(c, 64) }
	var wg sync.WaitGroup
	all := make(chan struct{})
	begun := make(chan struct{}, 4)
	outcomes := make([]error, 4)
	for i := range outcomes {
		wg.Go(func() { // all begin before any has sent anything
			body := io.MultiReader(&waits{begun, all}, strings.NewReader(strings.Repeat("x", 40_000)))
			outcomes[i] = s.Upload(t.Context(), "p", hash(string(rune('a'+i))), body)
		})
	}
	for range outcomes {
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Fatal("an upload does not begin")
		}
	}
	close(all)
	wg.Wait()
	kept := 0
	for _, err := range outcomes {
		if err == nil {
			kept++
		} else if errdefs.From(err).Reason != errdefs.TooLarge {
			t.Error(err)
		}
	}
	if n := uploaded(filepath.Join(dir, "builds", "uploads", "p")); kept > 2 || n > 100_000+1_000 { // records are small
		t.Errorf("%d archives of 40,000 bytes, %d together", kept, n)
	}
	if len(s.rooms) != 0 {
		t.Errorf("rooms are left: %v", s.rooms)
	}
	if err := s.Upload(t.Context(), "q", hash("e"), strings.NewReader(strings.Repeat("x", 60_000))); err != nil {
		t.Errorf("as large as an archive may be: %v", err)
	}
	if err := s.Upload(t.Context(), "r", hash("f"), strings.NewReader(strings.Repeat("x", 60_001))); errdefs.From(err).Reason != errdefs.TooLarge {
		t.Errorf("larger than an archive may be: %v", err)
	}
	for i := range 5 { // what was refused takes no room
		if err := s.Upload(t.Context(), "r", hash("f"), strings.NewReader(strings.Repeat("x", 45_000))); err != nil {
			t.Errorf("again, %d: %v", i, err)
		}
	}
}

// waits says that it is read, and ends when it may.
type waits struct {
	begun chan<- struct{}
	until <-chan struct{}
}

func (w *waits) Read([]byte) (int, error) {
	w.begun <- struct{}{}
	<-w.until
	return 0, io.EOF
}
