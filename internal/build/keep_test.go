package build

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func service(t *testing.T, dir string, now *time.Time) *Service {
	t.Helper()
	templates, err := template.Open(dir, template.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Dir: filepath.Join(dir, "builds"), Templates: templates, Importer: templates, Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Archives are the project's own, are kept while they are asked for, and half-sent ones go with the server that took them.
func TestUploadsAreKept(t *testing.T) {
	dir, now, hash := t.TempDir(), time.Now(), strings.Repeat("ab", 32)
	s := service(t, dir, &now)
	if err := s.Upload(t.Context(), "p", hash, strings.NewReader("some tar")); err != nil {
		t.Fatal(err)
	}
	has := func(project string) bool {
		t.Helper()
		ok, err := s.HasUpload(project, hash)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !has("p") || has("q") {
		t.Error("an archive is its project's and nobody else's")
	}
	f, err := s.Files("p", hash)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := f.Open(); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
	if f, err := s.Files("q", hash); err != nil {
		t.Error(err)
	} else if _, err := f.Open(); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("files that were not uploaded: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Upload(ended, "p", hash, bytes.NewReader(nil)); err == nil {
		t.Error("an upload whose caller has gone")
	}
	for _, bad := range [][2]string{{"p", "XY"}, {"p", "../" + hash}, {"../p", hash}, {"", hash}} {
		if err := s.Upload(t.Context(), bad[0], bad[1], strings.NewReader("x")); errdefs.From(err).Reason != errdefs.InvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
	half := filepath.Join(dir, "builds", "uploads", "p", ".new-1")
	if err := os.WriteFile(half, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(dir, "builds", "uploads", "p", strings.Repeat("cd", 32)+".tar") // killed before its record
	if err := os.WriteFile(alone, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Close()
	now = now.Add(6 * 24 * time.Hour)
	s = service(t, dir, &now)
	if _, err := os.Stat(half); err == nil {
		t.Error("a half-sent archive is left")
	}
	if !has("p") { // which keeps it for longer
		t.Error("an archive is gone within a week")
	}
	s.Close()
	now = now.Add(6 * 24 * time.Hour)
	if s = service(t, dir, &now); !has("p") {
		t.Error("an archive that was asked for is gone within a week")
	}
	s.Close()
	now = now.Add(8 * 24 * time.Hour)
	if s = service(t, dir, &now); has("p") {
		t.Error("an archive that nobody asked for is kept")
	}
	if _, err := os.Stat(alone); err == nil {
		t.Error("an archive without a record is kept")
	}
}

// A request that nobody starts is forgotten, and its template with it.
func TestRequestsExpire(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s := service(t, dir, &now)
	tpl, b, err := s.Request(t.Context(), "p", Request{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "a/b", "ä", "a:", "a:b c", strings.Repeat("x", 200)} {
		if _, _, err := s.Request(t.Context(), "p", Request{Name: name}); errdefs.From(err).Reason != errdefs.InvalidArgument {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := s.Cancel("p", tpl.ID, b.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Build("p", tpl.ID, b.ID); err != nil || got.Status != Failed {
		t.Errorf("%+v, %v", got, err)
	}
	if err := s.Start(t.Context(), "p", tpl.ID, b.ID, Recipe{Image: "x"}); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("starting what was cancelled: %v", err)
	}
	other, _, err := s.Request(t.Context(), "p", Request{Name: "y"})
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(25 * time.Hour)
	if _, _, err := s.Request(t.Context(), "p", Request{Name: "z"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("p", other.ID); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("a template that was never built: %v", err)
	}
}

// A log that grows without end is cut, but says why the build failed.
func TestLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	for range maxLogEntries + 100 {
		l.add(1, "info", "line\xff")
	}
	l.add(1, "error", "the end")
	l.file.Close()
	for _, all := range [][]Entry{l.read(), readLog(path)} {
		n := len(all)
		if n != maxLogEntries+2 || all[n-1].Message != "the end" || !strings.Contains(all[n-2].Message, "left out") || all[0].Message != "line\uFFFD" {
			t.Errorf("%d lines, %+v", n, all[n-2:])
		}
	}
}
