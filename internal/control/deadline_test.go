package control_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
)

// dated makes a running session whose time is up in a minute.
func (w *world) dated(then string) *control.Session {
	w.t.Helper()
	req := request(1)
	req.Lifetime, req.AtDeadline = time.Minute, then
	return w.create(req)[0].Session
}

// inBubble runs a test in virtual time: deadlines are far, tests are not.
func inBubble(t *testing.T, fn func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, spec.Scheduler{})
		defer w.end()
		fn(t, w)
	})
}

func TestDeadlineStops(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := w.dated("")
		if left := time.Until(s.Deadline); s.AtDeadline != "stop" || left != time.Minute {
			t.Fatalf("%s in %s", s.AtDeadline, left)
		}
		time.Sleep(time.Minute - time.Millisecond)
		if got := w.get(s.ID); got.Phase != "RUNNING" {
			t.Fatalf("early: %+v", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := w.get(s.ID); got.Phase != "COMPLETED" || got.Error != nil || !strings.Contains(got.Reason, "1m0s") {
			t.Fatalf("%+v", got)
		}
		if _, err := w.SetDeadline(t.Context(), control.DefaultProject, s.ID, control.Deadline{Lifetime: time.Hour}); !errors.Is(err, errdefs.ErrBoxGone) {
			t.Fatal(err)
		}
	})
}

func TestDeadlineMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := w.dated("stop")
		set := func(d control.Deadline) {
			t.Helper()
			if _, err := w.SetDeadline(t.Context(), control.DefaultProject, s.ID, d); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Second)
		set(control.Deadline{Lifetime: time.Hour})
		set(control.Deadline{Lifetime: time.Second, Extend: true}) // which it is not
		time.Sleep(59 * time.Minute)
		if got := w.get(s.ID); got.Phase != "RUNNING" {
			t.Fatalf("the old deadline acted: %+v", got)
		}
		set(control.Deadline{})
		time.Sleep(3 * time.Hour)
		if got := w.get(s.ID); got.Phase != "RUNNING" || !got.Deadline.IsZero() {
			t.Fatalf("a removed deadline acted: %+v", got)
		}
		set(control.Deadline{Lifetime: time.Second})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := w.get(s.ID); got.Phase != "COMPLETED" {
			t.Fatalf("%+v", got)
		}
	})
}

func TestDeadlineSuspends(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := w.dated("suspend")
		time.Sleep(time.Minute + time.Millisecond)
		synctest.Wait()
		if got := w.get(s.ID); got.Phase != "SUSPENDED" {
			t.Fatalf("%+v", got)
		}
		time.Sleep(time.Hour)
		if _, _, err := w.Reach(t.Context(), s.ID, false); !errors.Is(err, errdefs.ErrConflict) {
			t.Fatal(err)
		}
		_, release, err := w.Reach(t.Context(), s.ID, true)
		if err != nil {
			t.Fatal(err)
		}
		release()
		time.Sleep(time.Minute - time.Millisecond)
		if got := w.get(s.ID); got.Phase != "RUNNING" {
			t.Fatalf("a resumed session has its whole lifetime: %+v", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := w.get(s.ID); got.Phase != "SUSPENDED" {
			t.Fatalf("%+v", got)
		}
	})
}

// TestDeadlineOfWhatCannotBeFrozen: better stopped than for ever.
func TestDeadlineOfWhatCannotBeFrozen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.node.onSuspend = func(string) error {
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box", "it does not freeze")
		}
		s := w.dated("suspend")
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if got := w.get(s.ID); got.Phase != "COMPLETED" {
			t.Fatalf("%+v", got)
		}
	})
}

func TestDeadlineOutlivesTheServer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s, moved := w.dated("stop"), w.dated("stop")
		if _, err := w.SetDeadline(t.Context(), control.DefaultProject, moved.ID, control.Deadline{Lifetime: time.Hour, Then: "suspend"}); err != nil {
			t.Fatal(err)
		}
		w.Close()
		time.Sleep(2 * time.Minute)
		w.start()
		synctest.Wait()
		w.wait(s.ID, "COMPLETED")
		if got := w.get(moved.ID); got.Phase != "RUNNING" {
			t.Fatalf("%+v", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := w.get(moved.ID); got.Phase != "SUSPENDED" {
			t.Fatalf("%+v", got)
		}
	})
}

func TestDeadlineIsChecked(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	s := w.one()
	for _, d := range []control.Deadline{{Lifetime: -1}, {Lifetime: 400 * 24 * time.Hour}, {Lifetime: time.Second, Then: "explode"}} {
		if _, err := w.SetDeadline(t.Context(), control.DefaultProject, s.ID, d); errdefs.From(err).Reason != errdefs.InvalidArgument {
			t.Errorf("%+v: %v", d, err)
		}
	}
	req := request(1)
	req.AtDeadline = "stop"
	if _, err := w.Create(context.Background(), control.DefaultProject, req); errdefs.From(err).Reason != errdefs.InvalidArgument {
		t.Errorf("an action without a deadline: %v", err)
	}
	if _, err := w.SetDeadline(t.Context(), "other", s.ID, control.Deadline{Lifetime: time.Second}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("another project: %v", err)
	}
	if got, err := w.Locate(t.Context(), s.ID); err != nil || got.Project != control.DefaultProject {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := w.Locate(t.Context(), "s00000000000000000000000zz"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
