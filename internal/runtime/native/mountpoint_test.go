package native

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

func TestMountPointBelowAFileIsTheCallersFault(t *testing.T) {
	m := newMachine(t)
	_, err := m.Create(ctx(t), m.config(func(c *runtime.Config) { c.WritableDirs = []string{"/etc/passwd/x"} }))
	if e := errdefs.From(err); err == nil || e.Class != errdefs.User {
		t.Errorf("got %v", err)
	}
}

// A writable path that leads through a link of the template belongs to the user, as any other.
func TestWritablePathThroughALink(t *testing.T) {
	m := newMachine(t)
	links := layerDir(t, "srv")
	if err := os.Symlink("/srv", filepath.Join(links, "link")); err != nil {
		t.Fatal(err)
	}
	m.root.Layers = append([]runtime.Layer{{Path: links}}, m.root.Layers...)
	g := guestOf(t, m.create(func(c *runtime.Config) { c.WritableDirs = []string{"/link"} }))
	if got := out(t, g, "user", "echo x > /link/f; stat -c %u /srv/f"); got != "1000" {
		t.Errorf("owner %q", got)
	}
}
