package native

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// A Destroy that failed must not become a success by being called again.
func TestDestroyAgainProvesTheStore(t *testing.T) {
	m := newMachine(t)
	b := m.create(func(c *runtime.Config) { c.Store = "disk" })
	files := m.stores.Find(b.id)
	if len(files) != 1 {
		t.Skipf("no disk store here: %v", files)
	}
	f, err := os.Open(files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	immutable := func(on bool) error {
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		const immutableFlag = 0x10
		flags &^= immutableFlag
		if on {
			flags |= immutableFlag
		}
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags)
	}
	if err := immutable(true); err != nil {
		t.Skipf("files cannot be made immutable here: %v", err)
	}
	for range 2 {
		if err := b.Destroy(context.Background()); err == nil {
			t.Error("Destroy is content while the store is there")
		}
	}
	if err := immutable(false); err != nil {
		t.Fatal(err)
	}
	if err := b.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
	if left := m.stores.Find(b.id); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// A guest that died at its start is known by its pidfd; nobody waits for its end.
func TestBornDead(t *testing.T) {
	m := newMachine(t)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	b := &box{r: m.Runtime, id: "dead", pidfd: -1, done: make(chan struct{}), events: make(chan runtime.Event)}
	if err := b.born(1<<22-1, fd); err == nil {
		t.Fatal("a process that does not exist was born")
	}
	start := time.Now()
	b.kill(ctx(t))
	if b.pidfd != -1 || time.Since(start) > time.Second {
		t.Error("its end was waited for")
	}
	if err := unix.Close(fd); err == nil {
		t.Error("its descriptor was left open")
	}
}

// What the kernel counts by user must not be one account for all boxes and the host's root.
func TestUserCountsAreTheBoxesOwn(t *testing.T) {
	m := newMachine(t)
	g := guestOf(t, m.create())
	for range 140 { // each is an inotify instance of the box's root
		w, err := g.Watch(ctx(t), "/tmp", "root", false)
		if err != nil {
			break
		}
		defer w.Close()
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatalf("one box has used up the machine's inotify instances: %v", err)
	}
	unix.Close(fd)
}
