package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

func TestStores(t *testing.T) {
	m := newMachine(t)
	for name, change := range map[string]func(*runtime.Config){
		"tmpfs":          func(c *runtime.Config) { c.Store = "tmpfs" },
		"disk":           func(c *runtime.Config) { c.Store = "disk" },
		"writable tmpfs": func(c *runtime.Config) { c.Store, c.RootWritable = "tmpfs", true },
		"writable disk":  func(c *runtime.Config) { c.Store, c.RootWritable = "disk", true },
	} {
		t.Run(name, func(t *testing.T) {
			b := m.create(change, func(c *runtime.Config) { c.StoreSize = 8 << 20 })
			g := guestOf(t, b)
			if res := run(t, g, "user", "dd if=/dev/zero of=/workspace/big bs=64k count=512 2>&1"); res.ExitCode == 0 || !fullMessage(string(res.Stdout.Head)) {
				t.Errorf("32 MiB into 8: exit %d, %s", res.ExitCode, res.Stdout.Head)
			}
			u, err := b.Usage(ctx(t))
			if err != nil || u.StoreUsed < 4<<20 || u.StoreUsed > u.StoreLimit {
				t.Errorf("usage %+v, %v", u, err)
			}
			out(t, g, "root", "rm /workspace/big; chown 33:44 /workspace; touch /workspace/a && ln /workspace/a /workspace/b && mv /workspace/b /workspace/c")
			if err := b.Destroy(ctx(t)); err != nil {
				t.Error(err)
			}
		})
	}
	m.clean()
}

func TestMemoryWarningsThenOOM(t *testing.T) {
	m := newMachine(t)
	b := m.create(func(c *runtime.Config) { c.Limits.Memory, c.TmpSize = 128<<20, 127<<20 })
	g := guestOf(t, b)
	var kinds []string
	wait := func(want string) {
		t.Helper()
		timeout := time.After(time.Minute) // busy machines take their time
		for {
			select {
			case e := <-b.Events():
				kinds = append(kinds, string(e.Kind)+" "+itoa(e.Percent))
				if kinds[len(kinds)-1] == want {
					return
				}
			case <-timeout:
				t.Fatalf("no %s within a minute; told: %v", want, kinds)
			}
		}
	}
	out(t, g, "user", "dd if=/dev/zero of=/tmp/a bs=1M count=106")
	wait("memory_warning 80")
	run(t, g, "user", "dd if=/dev/zero of=/tmp/b bs=1M count=17 2>/dev/null; sleep 1")
	wait("memory_warning 95")
	if res := run(t, g, "user", "tail /dev/zero"); !res.OOM {
		t.Errorf("ended like this: %+v", res)
	}
	wait("oom_kill 0")
	if len(kinds) != 3 {
		t.Errorf("told: %v", kinds)
	}
	if got := out(t, g, "user", "rm /tmp/a /tmp/b; echo alive"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

func TestIOLimits(t *testing.T) {
	m := newMachine(t)
	file := filepath.Join(m.root.Layers[1].Path, "big")
	if err := os.WriteFile(file, make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	limited := func(c *runtime.Config) { c.Limits.ReadBPS = 1 << 20 }
	if diskOf(m.dir) == "" {
		if _, err := m.Create(ctx(t), m.config(limited)); errdefs.From(err).Reason != errdefs.Unsupported {
			t.Errorf("without a disk: %v", err)
		}
		t.Skip("the data directory is on no disk")
	}
	b := m.create(limited)
	g := guestOf(t, b)
	read := func() time.Duration {
		start := time.Now()
		out(t, g, "user", "dd if=/big of=/dev/null bs=256k iflag=direct")
		return time.Since(start)
	}
	if took := read(); took < 1500*time.Millisecond {
		t.Errorf("3 MiB at 1 MiB a second took %v", took)
	}
	l := b.limits
	l.ReadBPS = 0
	if err := b.SetLimits(ctx(t), l); err != nil {
		t.Fatal(err)
	}
	if took := read(); took > 1500*time.Millisecond {
		t.Errorf("without the limit it took %v", took)
	}
	l.ReadBPS = 1 << 20
	if err := m.create().SetLimits(ctx(t), l); err != nil && errdefs.From(err).Reason != errdefs.Unsupported {
		t.Errorf("a limit for a box made without: %v", err)
	}
}

func TestForkBombStaysInItsBox(t *testing.T) {
	m := newMachine(t)
	b := m.create()
	g := guestOf(t, b)
	res, err := g.Run(ctx(t), guestproto.ExecRequest{OpID: "bomb", Argv: []string{"/bin/sh", "-c", "f() { f | f & }; f; sleep 10"}, TimeoutMs: 1500})
	if err != nil || !res.TimedOut {
		t.Errorf("ended like this: %+v, %v", res, err)
	}
	u, err := b.Usage(ctx(t))
	if err != nil || u.Pids > 64 {
		t.Errorf("usage %+v, %v", u, err)
	}
	if got := out(t, g, "user", "echo alive"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

func TestTheNodesFileSystemShowsNoBox(t *testing.T) {
	m := newMachine(t)
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	m.create(func(c *runtime.Config) { c.RootWritable, c.Store = true, "disk" })
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(before), "\n") != strings.Count(string(after), "\n") {
		t.Errorf("the host's mounts changed:\n%s", after)
	}
}

// fullMessage: a project quota has another word for it.
func fullMessage(s string) bool {
	return strings.Contains(s, "No space") || strings.Contains(s, "quota exceeded")
}
