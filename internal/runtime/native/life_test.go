package native

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

func all(string) bool  { return true }
func none(string) bool { return false }

// spawnerPid finds the spawner of the machine by its cgroup.
func (m *machine) spawnerPid() int {
	m.t.Helper()
	pids := m.groups.Spawners()
	if len(pids) != 1 {
		m.t.Fatalf("spawners: %v", pids)
	}
	return pids[0]
}

// clean fails the test if anything of any box is left.
func (m *machine) clean() {
	m.t.Helper()
	left, err := m.Sweep(ctx(m.t), none)
	if err != nil || len(left) > 0 {
		m.t.Errorf("left: %+v, %v", left, err)
	}
	for _, glob := range []string{m.dir + "/run/boxes/*", m.dir + "/boxes/*", "/sys/fs/cgroup/*/" + rootName(m.dir) + "/b[0-9]*", "/sys/fs/cgroup/" + rootName(m.dir) + "/b[0-9]*"} {
		if found, _ := filepath.Glob(glob); len(found) > 0 {
			m.t.Errorf("left: %v", found)
		}
	}
}

func TestBoxesOutliveTheSpawner(t *testing.T) {
	m := newMachine(t)
	b := m.create()
	g := guestOf(t, b)
	old := m.spawnerPid()
	if err := unix.Kill(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := out(t, g, "user", "echo alive"); got != "alive" {
		t.Errorf("got %q", got)
	}
	c := m.create() // by a new spawner
	if now := m.spawnerPid(); now == old {
		t.Error("the killed spawner works on")
	}
	if got := out(t, guestOf(t, c), "user", "echo alive"); got != "alive" {
		t.Errorf("got %q", got)
	}
	// The exit of a box whose parent is gone is noticed all the same.
	if err := unix.Kill(b.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Done():
	case <-time.After(5 * time.Second):
		t.Error("the end of the box was not noticed")
	}
	for _, x := range []*box{b, c} {
		if err := x.Destroy(ctx(t)); err != nil {
			t.Error(err)
		}
	}
	m.clean()
}

func TestHungSpawnerIsReplaced(t *testing.T) {
	m := newMachine(t)
	a := m.create()
	m.spawns.patience = 300 * time.Millisecond
	old := m.spawnerPid()
	if err := unix.Kill(old, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	b := m.create()
	if now := m.spawnerPid(); now == old {
		t.Error("the hung spawner is there still")
	}
	for _, x := range []*box{a, b} {
		if got := out(t, guestOf(t, x), "user", "echo alive"); got != "alive" {
			t.Errorf("got %q", got)
		}
	}
}

func TestSpawnerKilledUnderLoad(t *testing.T) {
	m := newMachine(t)
	start := time.Now()
	if err := m.create().Destroy(ctx(t)); err != nil {
		t.Fatal(err)
	}
	pause := max(15*time.Millisecond, 2*time.Since(start)) // an emulated machine is slow
	stop := make(chan struct{})
	killed := make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				killed <- n
				return
			case <-time.After(pause):
				for _, pid := range m.groups.Spawners() {
					if unix.Kill(pid, unix.SIGKILL) == nil {
						n++
					}
				}
			}
		}
	}()
	made := 0
	for range 60 {
		b, err := m.Create(ctx(t), m.config())
		if err != nil {
			continue // twice in a row is possible; what counts is that nothing is left
		}
		made++
		if err := b.Destroy(ctx(t)); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	n := <-killed
	t.Logf("%d of 60 made, %d spawners killed", made, n)
	if made < 20 || n < 3 {
		t.Error("too few to show anything")
	}
	m.clean()
}

func TestAdoption(t *testing.T) {
	m := newMachine(t)
	var recs []runtime.Record
	for _, change := range []func(*runtime.Config){
		func(c *runtime.Config) {},
		func(c *runtime.Config) { c.RootWritable, c.Store = true, "disk" },
		func(c *runtime.Config) { c.Store = "disk" },
	} {
		b := m.create(change)
		out(t, guestOf(t, b), "root", "echo kept > /workspace/x; (sleep 1000 &) ; true")
		recs = append(recs, b.Record())
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m.start()
	for _, rec := range recs {
		rb, err := m.Open(ctx(t), rec)
		if err != nil {
			t.Fatal(err)
		}
		if got := out(t, guestOf(t, rb), "root", "cat /workspace/x; ps | grep -c '[s]leep 1000'"); got != "kept\n1" {
			t.Errorf("got %q", got)
		}
		u, err := rb.Usage(ctx(t))
		if err != nil || u.StoreLimit != 16<<20 || u.StoreUsed <= 0 || u.Pids < 1 {
			t.Errorf("usage %+v, %v", u, err)
		}
	}
	// Their id ranges are not given away.
	fresh := m.create()
	for _, rec := range recs {
		if m.boxes[rec.ID].slot == fresh.slot {
			t.Error("two boxes with one id range")
		}
	}
	if found, err := m.Sweep(ctx(t), all); err != nil || len(found) > 0 {
		t.Errorf("swept %v, %v", found, err)
	}
	for _, rec := range recs {
		if err := m.boxes[rec.ID].Destroy(ctx(t)); err != nil {
			t.Error(err)
		}
	}
	if err := fresh.Destroy(ctx(t)); err != nil {
		t.Error(err)
	}
	m.clean()
}

func TestAdoptionChecksThePid(t *testing.T) {
	m := newMachine(t)
	b := m.create()
	rec := b.Record()
	other := rec
	other.ID = "other"
	wrongStart := rec
	wrongStart.Data = []byte(strings.Replace(string(rec.Data), `"start":`, `"start":1`, 1))
	wrongBoot := rec
	wrongBoot.Data = []byte(strings.Replace(string(rec.Data), `"boot":"`, `"boot":"x`, 1))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m.start()
	for name, r := range map[string]runtime.Record{"another id": other, "another start": wrongStart, "another boot": wrongBoot} {
		if _, err := m.Open(ctx(t), r); !errors.Is(err, errdefs.ErrBoxGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.Open(ctx(t), rec); err != nil {
		t.Error(err)
	}
}

func TestSweepOfHalfMadeBoxes(t *testing.T) {
	m := newMachine(t)
	whole := m.create()
	// What a daemon leaves that dies at any point of a create.
	birth, err := m.groups.Create("half1", slotBase(7), m.config().Limits)
	if err != nil {
		t.Fatal(err)
	}
	birth.Close()
	fd, err := listenUnix(m.socketPath("half2"), unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	store, err := m.stores.Make("half3", "disk", 8<<20, slotBase(8))
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	found, err := m.Sweep(ctx(t), func(id string) bool { return id == whole.id })
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range found {
		if o.Err != nil {
			t.Errorf("%+v", o)
		}
		seen[o.ID] = true
	}
	for _, id := range []string{"half1", "half2"} {
		if !seen[id] {
			t.Errorf("%s was not found", id)
		}
	}
	if disk, _ := m.stores.Disk(); disk != "tmpfs" && !seen["half3"] {
		t.Error("half3 was not found")
	}
	if got := out(t, guestOf(t, whole), "user", "echo alive"); got != "alive" {
		t.Errorf("the whole box says %q", got)
	}
	if err := whole.Destroy(ctx(t)); err != nil {
		t.Error(err)
	}
	m.clean()
}
