package files

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

func (c *client) watch(dir string, recursive bool) (*mux.Stream, <-chan guestproto.WatchEvent) {
	c.t.Helper()
	s := c.open(guestproto.KindFileWatch, guestproto.FileRequest{Path: dir, User: self(), Recursive: recursive}, false)
	must(c.t, s.RecvMessage(&guestproto.Reply{}))
	events := make(chan guestproto.WatchEvent, 1<<16)
	go func() {
		defer close(events)
		for {
			var e guestproto.WatchEvent
			if s.RecvMessage(&e) != nil {
				return
			}
			events <- e
		}
	}()
	return s, events
}

// expect waits until the event has come, whatever comes before it.
func expect(t *testing.T, events <-chan guestproto.WatchEvent, kind, path string) {
	t.Helper()
	limit := time.After(5 * time.Second)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("the watch ended before %s %s", kind, path)
			}
			if e.Kind == kind && e.Path == path {
				return
			}
		case <-limit:
			t.Fatalf("no %s %s", kind, path)
		}
	}
}

func TestWatch(t *testing.T) {
	c, dir := start(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Mkdir(at("old"), 0o755))
	s, events := c.watch(dir, true)
	must(t, os.WriteFile(at("f"), []byte("x"), 0o644))
	expect(t, events, "create", "f")
	expect(t, events, "write", "f")
	must(t, os.Chmod(at("f"), 0o600))
	expect(t, events, "chmod", "f")
	must(t, os.WriteFile(at("old/g"), nil, 0o644))
	expect(t, events, "create", "old/g")
	// A tree made at once: all of it is told, and new directories are watched.
	must(t, os.MkdirAll(at("a/b/c"), 0o755))
	expect(t, events, "create", "a/b/c")
	must(t, os.WriteFile(at("a/b/c/deep"), nil, 0o644))
	expect(t, events, "create", "a/b/c/deep")
	must(t, os.Rename(at("a/b"), at("moved")))
	expect(t, events, "rename", "a/b")
	expect(t, events, "create", "moved")
	must(t, os.WriteFile(at("moved/c/again"), nil, 0o644))
	expect(t, events, "create", "moved/c/again")
	must(t, os.Remove(at("f")))
	expect(t, events, "remove", "f")
	must(t, os.RemoveAll(dir))
	expect(t, events, "remove", "old")
	for range events { // ends with the directory
	}
	s.Close()
}

// TestWatchDoesNotTellOfTemporaryFiles: a replaced file is one event.
func TestWatchDoesNotTellOfTemporaryFiles(t *testing.T) {
	c, dir := start(t), t.TempDir()
	_, events := c.watch(dir, true)
	_, err := c.write(guestproto.FileRequest{Path: filepath.Join(dir, "f"), User: self(), Size: -1}, []byte("x"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "#1"), nil, 0o644))
	for _, want := range []string{"f", "#1"} {
		select {
		case e := <-events:
			if e.Kind != "create" || e.Path != want {
				t.Errorf("got %+v, want create %s", e, want)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("no event")
		}
	}
}

func TestWatchEndsWithClient(t *testing.T) {
	c, dir := start(t), t.TempDir()
	s, events := c.watch(dir, false)
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	expect(t, events, "create", "sub")
	must(t, os.WriteFile(filepath.Join(dir, "sub/f"), nil, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "end"), nil, 0o644))
	expect(t, events, "create", "end")
	s.Close() // goleak tells whether the worker noticed
	_, err := os.Stat(dir)
	must(t, err)
	bad := c.open(guestproto.KindFileWatch, guestproto.FileRequest{Path: filepath.Join(dir, "end"), User: self()}, false)
	wantError(t, bad.RecvMessage(&guestproto.Reply{}), "user", "invalid_argument")
}

// TestWatchOverflow: a client that does not read is told that it missed something.
func TestWatchOverflow(t *testing.T) {
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil || len(b) > 6 {
		t.Skip("the kernel's queue is too long to fill")
	}
	c, dir := start(t), quickDir(t)
	s := c.open(guestproto.KindFileWatch, guestproto.FileRequest{Path: dir, User: self(), Recursive: true}, false)
	must(t, s.RecvMessage(&guestproto.Reply{}))
	for range 20_000 { // also fills the stream's window
		path := filepath.Join(dir, "f")
		must(t, os.WriteFile(path, nil, 0o644))
		must(t, os.Remove(path))
	}
	for {
		var e guestproto.WatchEvent
		must(t, s.RecvMessage(&e))
		if e.Overflow {
			break
		}
	}
	s.Close()
}
