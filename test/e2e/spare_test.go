package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/launch"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// spareIDs are the boxes that the daemon has begun ahead, as its run directory names them.
func (e *env) spareIDs() []string {
	files, _ := filepath.Glob(filepath.Join(e.DataDir(), "run/boxes/*.spare.sock"))
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".spare.sock")
	}
	return files
}

// A create goes on from a spare, another takes its place, and spares do not outlive their daemon.
func TestSpares(t *testing.T) {
	e := startOwn(t, "--no-pool")
	eventually(t, "the daemon makes spares", func() bool { return len(e.spareIDs()) >= 2 })
	before := e.spareIDs()
	s := e.session(t, dsec.CreateOptions{})
	mustRun(t, s, dsec.Command{Argv: []string{"true"}})
	info, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	box := info.Session.GetBox()
	if !slices.Contains(before, box) {
		t.Errorf("box %s was none of the spares %v", box, before)
	}
	eventually(t, "another spare takes its place", func() bool {
		now := e.spareIDs()
		return len(now) >= len(before) && !slices.Contains(now, box)
	})
	e.Kill()
	eventually(t, "spares end with their daemon", func() bool { return countGuests(e) == 1 })
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustRun(t, s, dsec.Command{Argv: []string{"true"}})
}

// countGuests counts every guest, spares included.
func countGuests(e *env) (n int) {
	for _, name := range launch.Processes(e.DataDir()) {
		if strings.HasPrefix(name, "dsec-guest") {
			n++
		}
	}
	return n
}
