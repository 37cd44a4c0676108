package session_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
)

// lifetime is a running session whose time is up in a minute.
func lifetime(t *testing.T, then session.Action) session.Row {
	t.Helper()
	r := session.New("s", t0)
	r.Lifetime, r.AtDeadline = time.Minute, then
	return apply(t, r, t0, session.Place{Node: "n"}, session.Start{Box: "b"})
}

func apply(t *testing.T, r session.Row, now time.Time, evs ...session.Event) session.Row {
	t.Helper()
	for _, ev := range evs {
		next, _, err := session.Apply(r, ev, now)
		if err != nil {
			t.Fatalf("%T: %v", ev, err)
		}
		r = next
	}
	return r
}

func TestDeadlineBeginsWhenItRuns(t *testing.T) {
	r := session.New("s", t0)
	r.Lifetime, r.AtDeadline = time.Minute, session.ActStop
	r = apply(t, r, t0.Add(time.Hour), session.Place{Node: "n"}) // it waited in the queue
	if r = apply(t, r, t0.Add(2*time.Hour), session.Start{Box: "b"}); !r.Deadline.Equal(t0.Add(2*time.Hour + time.Minute)) {
		t.Fatal(r.Deadline)
	}
}

func TestExpire(t *testing.T) {
	late := t0.Add(2 * time.Minute)
	r := apply(t, lifetime(t, session.ActStop), late, session.Expire{Then: session.ActStop})
	if r.Desired != session.WantStopped || r.Reclaim != session.ReclaimPending || r.Error != nil {
		t.Fatalf("%+v", r)
	}
	r = apply(t, lifetime(t, session.ActSuspend), late, session.Expire{Then: session.ActSuspend})
	if r.Desired != session.WantSuspended {
		t.Fatalf("%+v", r)
	}
	for name, r := range map[string]session.Row{
		"too early": lifetime(t, session.ActStop),
		"moved":     apply(t, lifetime(t, session.ActStop), late, session.SetDeadline{At: late.Add(time.Second), Lifetime: time.Second}),
		"removed":   apply(t, lifetime(t, session.ActStop), t0, session.SetDeadline{}),
		"suspended": apply(t, lifetime(t, session.ActStop), t0, session.Suspend{}, session.Frozen{}),
		"other":     apply(t, lifetime(t, session.ActStop), t0, session.SetDeadline{At: t0, Lifetime: time.Second, Then: session.ActSuspend}),
	} {
		now := late
		if name == "too early" {
			now = t0.Add(time.Minute - 1)
		}
		if next := apply(t, r, now, session.Expire{Then: session.ActStop}); next != r {
			t.Errorf("%s: %+v", name, next)
		}
	}
}

func TestResumeAfterTheDeadline(t *testing.T) {
	r := apply(t, lifetime(t, session.ActSuspend), t0.Add(time.Minute), session.Expire{Then: session.ActSuspend}, session.Frozen{})
	r = apply(t, r, t0.Add(time.Hour), session.Resume{}, session.Thawed{})
	if !r.Deadline.Equal(t0.Add(time.Hour + time.Minute)) {
		t.Fatal("a resumed session would be suspended again at once:", r.Deadline)
	}
	early := apply(t, lifetime(t, session.ActSuspend), t0, session.Suspend{}, session.Frozen{}, session.Resume{})
	if !early.Deadline.Equal(t0.Add(time.Minute)) {
		t.Fatal("a resume before the deadline moved it:", early.Deadline)
	}
}

func TestSetDeadline(t *testing.T) {
	r := lifetime(t, session.ActStop)
	shorter := session.SetDeadline{At: t0.Add(time.Second), Lifetime: time.Second, Extend: true}
	if got := apply(t, r, t0, shorter); !got.Deadline.Equal(r.Deadline) {
		t.Error("an extension made it shorter:", got.Deadline)
	}
	shorter.Extend = false
	if got := apply(t, r, t0, shorter); !got.Deadline.Equal(t0.Add(time.Second)) || got.AtDeadline != session.ActStop {
		t.Errorf("%+v", got)
	}
	if _, _, err := session.Apply(session.New("s", t0), shorter, t0); !errors.Is(err, errdefs.ErrConflict) {
		t.Error("before it runs:", err)
	}
}
