package native

import (
	"os"
	"path/filepath"
	"strings"
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

// In a writable root a writable path is where nothing of the platform is mounted; a file is none either.
func TestWritablePathOnWhatIsMounted(t *testing.T) {
	m := newMachine(t)
	file := filepath.Join(t.TempDir(), "authorities.pem")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/etc/authorities.pem", "/etc/authorities.pem/x", "/data", "/data/x", "/proc/x", "/etc/passwd"} {
		claim := func(c *runtime.Config) {
			c.WritableDirs = []string{path}
			c.Mounts = []runtime.DataMount{{Source: file, Target: "/etc/authorities.pem"}, {Source: filepath.Dir(file), Target: "/data"}}
		}
		cfg := m.config(claim)
		cfg.RootWritable = true
		_, err := m.Create(ctx(t), cfg)
		if e := errdefs.From(err); err == nil || e.Class != errdefs.User || e.Remedy == "" {
			t.Errorf("%s: %v", path, err)
		}
		pooled := m.create(func(c *runtime.Config) { c.RootWritable, c.Pooled = true, true })
		if e := errdefs.From(pooled.Claim(ctx(t), cfg.Claim)); e == nil || e.Class != errdefs.User || e.Remedy == "" {
			t.Errorf("%s, claimed: %v", path, e)
		}
	}
}

// A default user whom the template lacks is refused when the box is made, and not by every command.
func TestDefaultUserThatTheTemplateLacks(t *testing.T) {
	m := newMachine(t)
	pooled := func() runtime.Box { return m.create(func(c *runtime.Config) { c.Pooled = true }) }
	for user, fine := range map[string]bool{"nobodyx": false, "user": true, "root": true, "4321": true} {
		cfg := m.config(func(c *runtime.Config) { c.User, c.Root.Template = user, "small@1" })
		b, err := m.Create(ctx(t), cfg)
		claimed := pooled().Claim(ctx(t), cfg.Claim)
		if fine {
			if err != nil || claimed != nil {
				t.Errorf("%s: %v, %v", user, err, claimed)
			} else if got := out(t, guestOf(t, b), "", "id -u"); got == "" {
				t.Errorf("%s runs nothing", user)
			}
			continue
		}
		e := errdefs.From(err)
		if err == nil || e.Class != errdefs.User || e.Object != "field user" || e.Remedy == "" || !strings.Contains(e.Message, user) || !strings.Contains(e.Message, "small@1") {
			t.Errorf("%s: %v", user, err)
		}
		if e := errdefs.From(claimed); e == nil || e.Class != errdefs.User || e.Object != "field user" {
			t.Errorf("%s, claimed: %v", user, claimed)
		}
	}
}
