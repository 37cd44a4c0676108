package node

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// diskFull makes every append to the journal fail until the returned function is called.
func (r *rig) diskFull() (freed func()) {
	set := func(f func(int64) error) {
		r.node.journal.mu.Lock()
		defer r.node.journal.mu.Unlock()
		r.node.journal.before = f
	}
	set(func(int64) error { return syscall.ENOSPC })
	return func() { set(nil) }
}

// A full disk lets no box outlive its deadline.
func TestRuntimeClockWithAFullDisk(t *testing.T) {
	virtual(t, func(r *rig) {
		r.createWith("s", 0, 30*time.Minute)
		defer r.diskFull()()
		r.after(30*time.Minute, RuntimeOver)
		synctest.Wait()
		if got := r.states()["s"]; got != Audit {
			r.t.Errorf("state %q", got)
		}
		if !r.rt.Box(r.create("s").Box).AgentKilled() {
			r.t.Error("its processes go on")
		}
	})
}

// What could not be journaled has not happened: box and books agree, and the next try works.
func TestSuspendWithAFullDisk(t *testing.T) {
	r := newRig(t)
	ctx := context.Background()
	box := r.rt.Box(r.create("s").Box)
	agree := func(want State) {
		t.Helper()
		if got := r.states()["s"]; got != want || box.Frozen() != (want == Suspended) {
			t.Fatalf("state %q, frozen %v, want %q", got, box.Frozen(), want)
		}
	}
	freed := r.diskFull()
	if err := r.node.Suspend(ctx, "s"); err == nil {
		t.Fatal("suspended without a record")
	}
	agree(Live)
	freed()
	if err := r.node.Suspend(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	agree(Suspended)
	freed = r.diskFull()
	if err := r.node.Resume(ctx, "s"); err == nil {
		t.Fatal("resumed without a record")
	}
	agree(Suspended)
	freed()
	if err := r.node.Resume(ctx, "s"); err != nil {
		t.Fatal(err)
	}
	agree(Live)
}

func TestCreateWithAFullDisk(t *testing.T) {
	r := newRig(t)
	freed := r.diskFull()
	_, err := r.node.Create(context.Background(), request("s"))
	if e := errdefs.From(err); e.Class != errdefs.Infrastructure || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("create: %+v", e)
	}
	r.empty()
	freed()
	r.create("s")
}
