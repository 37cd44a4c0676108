package node

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/fake"
)

func (r *rig) acquire(session string) error {
	_, release, err := r.node.Acquire(context.Background(), session)
	if err == nil {
		release()
	}
	return err
}

// Whose fault it is that a guest does not answer, by what is seen outside of the box.
func TestVerdictOnAGuest(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(r *rig, box string)
		class   errdefs.Class
		reason  errdefs.Reason
		event   EventKind
	}{
		"refuses connections": {
			func(r *rig, _ string) {
				r.rt.SetHooks(fake.Hooks{Dial: func(context.Context, string) error { return syscall.ECONNREFUSED }})
			}, errdefs.Policy, errdefs.BoxTampered, BoxTampered,
		},
		"accepts and says nothing": {
			func(r *rig, _ string) { r.guests.fail = context.DeadlineExceeded }, errdefs.Policy, errdefs.BoxTampered, BoxTampered,
		},
		"breaks the protocol": {
			func(r *rig, _ string) {
				r.guests.fail = errdefs.Policyf(errdefs.BoxTampered, "guest", "", "bad hello")
			}, errdefs.Policy, errdefs.BoxTampered, BoxTampered,
		},
		"claims infrastructure": {
			func(r *rig, _ string) {
				r.guests.fail = errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "node", "it was not me")
			}, errdefs.Policy, errdefs.BoxTampered, BoxTampered,
		},
		"is dead": {
			func(r *rig, box string) { r.rt.Box(box).Kill() }, errdefs.Policy, errdefs.BoxGone, BoxLost,
		},
		"cannot be asked: the node has no descriptors": {
			func(r *rig, _ string) {
				r.rt.SetHooks(fake.Hooks{Dial: func(context.Context, string) error { return syscall.EMFILE }})
			}, errdefs.Infrastructure, errdefs.Internal, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			box := r.create("s").Box
			tc.prepare(r, box)
			err := r.acquire("s")
			if e := errdefs.From(err); err == nil || e.Class != tc.class || e.Reason != tc.reason {
				t.Fatalf("acquire: %v (%+v)", err, e)
			}
			r.rt.SetHooks(fake.Hooks{})
			if tc.event == "" {
				if err := r.acquire("s"); err != nil {
					t.Errorf("acquire when the node is well again: %v", err)
				}
				return
			}
			if e := r.event(tc.event); e.Session != "s" || e.Box != box {
				t.Errorf("event %+v", e)
			}
			// It is reclaimed without being asked, and its end is remembered until Destroy.
			eventually(t, "the box is reclaimed", func() bool { return len(r.rt.IDs()) == 0 })
			if got := r.states()["s"]; got != Lost {
				t.Errorf("state %q", got)
			}
			if e := errdefs.From(r.acquire("s")); e.Reason != tc.reason || e.Class != tc.class {
				t.Errorf("second acquire: %v", e)
			}
			r.destroy("s")
			r.empty()
			if len(r.states()) != 0 {
				t.Errorf("inventory %v", r.states())
			}
		})
	}
}

func TestEndOfABoxIsNoticed(t *testing.T) {
	r := newRig(t)
	box := r.create("s").Box
	r.rt.Box(box).Warn(runtime.Event{Kind: runtime.MemoryWarning, Percent: 80})
	if e := r.event(MemWarning); e.Percent != 80 {
		t.Errorf("event %+v", e)
	}
	r.rt.Box(box).Kill()
	r.event(BoxLost)
	eventually(t, "the box is reclaimed", func() bool { return len(r.rt.IDs()) == 0 })
	r.destroy("s")
	r.empty()
}

func TestLostConnectionIsMadeAgain(t *testing.T) {
	r := newRig(t)
	r.create("s")
	first, release, err := r.node.Acquire(context.Background(), "s")
	if err != nil {
		t.Fatal(err)
	}
	release()
	_ = first.Close()
	second, release, err := r.node.Acquire(context.Background(), "s")
	if err != nil {
		t.Fatal(err)
	}
	release()
	if first == second {
		t.Error("a dead connection was given out")
	}
}

// A guest that breaks a connection in use and takes no other ends its session without another op.
func TestLostConnectionInUseIsVerified(t *testing.T) {
	r := newRig(t)
	box := r.create("s").Box
	g, release, err := r.node.Acquire(context.Background(), "s")
	if err != nil {
		t.Fatal(err)
	}
	r.guests.fail = context.DeadlineExceeded
	_ = g.Close()
	release()
	if e := r.event(BoxTampered); e.Session != "s" || e.Box != box {
		t.Errorf("event %+v", e)
	}
	eventually(t, "the box is reclaimed", func() bool { return len(r.rt.IDs()) == 0 })
	r.destroy("s")
	r.empty()
}

func TestAcquireOfWhatIsNotThere(t *testing.T) {
	r := newRig(t)
	if err := r.acquire("nobody"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func BenchmarkAcquire(b *testing.B) {
	r := newRig(b)
	r.create("s")
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, release, err := r.node.Acquire(context.Background(), "s")
			if err != nil {
				b.Fatal(err)
			}
			release()
		}
	})
}
