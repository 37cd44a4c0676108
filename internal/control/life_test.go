package control_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/spec"
)

func id(s *control.Session) control.Selector { return control.Selector{IDs: []string{s.ID}} }

// TestTerminalOnlyWhenAcknowledged: a stop returns after the reclaim, however
// often the node fails at it.
func TestTerminalOnlyWhenAcknowledged(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	s := w.one()
	var mu sync.Mutex
	attempts := 0
	w.node.onDestroy = func(string) error {
		mu.Lock()
		defer mu.Unlock()
		attempts++
		if attempts < 4 {
			if got := w.get(s.ID); got.Phase != "RUNNING" || got.Desired != "stopped" || got.Reclaim != "pending" {
				t.Errorf("attempt %d: %+v", attempts, got)
			}
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box", "a mount is busy")
		}
		return nil
	}
	for range 2 {
		res, err := w.Stop(t.Context(), control.DefaultProject, id(s), "done")
		if err != nil || len(res) != 1 || res[0].Err != nil || res[0].Session.Phase != "COMPLETED" || res[0].Session.Reclaim != "acked" || res[0].Session.Reason != "done" {
			t.Fatalf("got %+v %v", res, err)
		}
	}
	if attempts != 4 || w.Counters().ReclaimRetries.Load() != 3 {
		t.Fatalf("%d attempts", attempts)
	}
}

func TestSelectors(t *testing.T) {
	w := newWorld(t, 100, spec.Scheduler{})
	defer w.end()
	var all []*control.Session
	for _, job := range []string{"a", "a", "b", "c"} {
		req := request(1)
		req.Job, req.Labels = job, map[string]string{"job": job, "x": "y"}
		all = append(all, w.create(req)[0].Session)
	}
	stop := func(sel control.Selector, want ...*control.Session) {
		t.Helper()
		res, err := w.Stop(t.Context(), control.DefaultProject, sel, "")
		if err != nil || len(res) != len(want) {
			t.Fatalf("got %+v %v", res, err)
		}
		for i, r := range res {
			if r.ID != want[i].ID || r.Err != nil || r.Session.Phase != "COMPLETED" {
				t.Fatalf("got %+v", r)
			}
		}
	}
	if res, err := w.Stop(t.Context(), "other", control.Selector{All: true}, ""); err != nil || len(res) != 0 {
		t.Fatalf("another project: %+v %v", res, err)
	}
	stop(control.Selector{Job: "a"}, all[0], all[1])
	stop(control.Selector{Labels: map[string]string{"x": "y", "job": "b"}}, all[2])
	stop(control.Selector{Labels: map[string]string{"x": "z"}})
	stop(control.Selector{All: true}, all[3])
	stop(control.Selector{IDs: []string{all[3].ID}}, all[3])
	res, err := w.Stop(t.Context(), control.DefaultProject, control.Selector{IDs: []string{"nobody"}}, "")
	if err != nil || !errors.Is(res[0].Err, errdefs.ErrNotFound) {
		t.Fatalf("got %+v %v", res, err)
	}
	for _, sel := range []control.Selector{{}, {All: true, Job: "a"}} {
		if _, err := w.Stop(t.Context(), control.DefaultProject, sel, ""); !errors.Is(err, &errdefs.Error{Reason: errdefs.InvalidArgument}) {
			t.Fatalf("%+v: %v", sel, err)
		}
	}
	page, next, err := w.List(t.Context(), control.DefaultProject, control.Filter{Phases: []string{"COMPLETED"}, Limit: 3, Newest: true})
	if err != nil || len(page) != 3 || page[0].ID != all[3].ID || next == "" {
		t.Fatalf("list: %v %q %v", page, next, err)
	}
	page, next, err = w.List(t.Context(), control.DefaultProject, control.Filter{Phases: []string{"COMPLETED"}, Limit: 3, Newest: true, Page: next})
	if err != nil || len(page) != 1 || page[0].ID != all[0].ID || next != "" {
		t.Fatalf("second page: %v %q %v", page, next, err)
	}
}

func TestSuspendAndResume(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	s := w.one()
	both := func(fn func() ([]control.StopResult, error), phase string) {
		t.Helper()
		for range 2 {
			res, err := fn()
			if err != nil || res[0].Err != nil || res[0].Session.Phase != phase {
				t.Fatalf("got %+v %v, want %s", res, err, phase)
			}
		}
	}
	suspend := func() ([]control.StopResult, error) {
		return w.Suspend(t.Context(), control.DefaultProject, id(s))
	}
	both(suspend, "SUSPENDED")
	waiting := make(chan *control.Session)
	go func() {
		got, err := w.Wait(context.Background(), control.DefaultProject, s.ID, "SUSPENDED")
		if err != nil {
			t.Error(err)
		}
		waiting <- got
	}()
	both(func() ([]control.StopResult, error) { return w.Resume(t.Context(), control.DefaultProject, id(s)) }, "RUNNING")
	both(suspend, "SUSPENDED")
	if got := <-waiting; got.Phase != "SUSPENDED" {
		t.Fatalf("waited for SUSPENDED, got %+v", got)
	}
	_, release, err := w.Guest(t.Context(), control.DefaultProject, s.ID) // any op resumes first
	if err != nil {
		t.Fatal(err)
	}
	release()
	if got := w.get(s.ID); got.Phase != "RUNNING" || got.Desired != "running" {
		t.Fatalf("got %+v", got)
	}
	w.node.onSuspend = func(string) error {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "cgroup", "cannot be frozen")
	}
	res, err := suspend()
	if err != nil || res[0].Err == nil || res[0].Session.Phase != "RUNNING" || res[0].Session.Desired != "running" {
		t.Fatalf("got %+v %v", res, err)
	}
}

func TestGuestOfASessionWithoutABox(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{MaxActiveSessions: 1, QueueLength: 1})
	defer w.end()
	s := w.one()
	req := request(1)
	req.NoWait = true
	waiting := w.create(req)[0].Session
	if _, _, err := w.Guest(t.Context(), control.DefaultProject, waiting.ID); !errors.Is(err, errdefs.ErrConflict) {
		t.Fatal(err)
	}
	if _, err := w.Stop(t.Context(), control.DefaultProject, id(s), ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Guest(t.Context(), control.DefaultProject, s.ID); !errors.Is(err, errdefs.ErrBoxGone) || errdefs.From(err).Class != errdefs.User {
		t.Fatal(err)
	}
	if ins, err := w.Inspect(t.Context(), control.DefaultProject, w.wait(waiting.ID, "RUNNING").ID); err != nil || ins.Box.(*node.Inspect).Box == "" {
		t.Fatalf("inspect: %+v %v", ins, err)
	}
}

// TestBoxesThatEnd: the end of a box is the agent's doing unless the node says
// that it is its own.
func TestBoxesThatEnd(t *testing.T) {
	for kind, class := range map[node.EventKind]errdefs.Class{
		node.BoxLost: errdefs.Policy, node.BoxTampered: errdefs.Policy, node.BoxFailed: errdefs.Infrastructure,
	} {
		w := newWorld(t, 10, spec.Scheduler{})
		s := w.one()
		w.node.events <- node.Event{Kind: kind, Session: s.ID, Box: s.Box}
		got := w.wait(s.ID, "FAILED")
		if got.Error == nil || got.Error.Class != class || got.Reclaim != "acked" {
			t.Errorf("%s: %+v", kind, got)
		}
		if _, _, err := w.Guest(t.Context(), control.DefaultProject, s.ID); errdefs.From(err).Class != class {
			t.Errorf("%s: an op says %v", kind, err)
		}
		w.end()
	}
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, spec.Scheduler{})
		defer w.end()
		s := w.one()
		idle := func(d time.Duration) {
			w.node.mu.Lock()
			w.node.live[s.ID].idle = d
			w.node.mu.Unlock()
			w.node.events <- node.Event{Kind: node.IdleExpired, Session: s.ID}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Minute)
		if err := w.Heartbeat(t.Context(), control.DefaultProject, s.ID); err != nil {
			t.Fatal(err)
		}
		idle(5 * time.Minute)
		if got := w.get(s.ID); got.Phase != "RUNNING" {
			t.Fatalf("its owner lives: %+v", got)
		}
		time.Sleep(time.Minute)
		idle(time.Second)
		if got := w.get(s.ID); got.Phase != "RUNNING" {
			t.Fatalf("it was used meanwhile: %+v", got)
		}
		idle(5 * time.Minute)
		if got := w.get(s.ID); got.Phase != "COMPLETED" || got.Reason != "idle for 5m0s" {
			t.Fatalf("got %+v", got)
		}
		if err := w.Heartbeat(t.Context(), control.DefaultProject, s.ID); !errors.Is(err, errdefs.ErrBoxGone) {
			t.Fatal(err)
		}
	})
}

func TestAudit(t *testing.T) {
	for _, stop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 10, spec.Scheduler{})
			defer w.end()
			s := w.one()
			if err := w.node.state(s.ID, node.Audit); err != nil {
				t.Fatal(err)
			}
			w.node.events <- node.Event{Kind: node.RuntimeOver, Session: s.ID}
			synctest.Wait()
			time.Sleep(time.Second)
			got := w.get(s.ID)
			if got.Phase != "SUSPENDED" || got.Desired != "audit" || !strings.HasPrefix(got.Reason, "audit") || got.Error.Reason != errdefs.TimedOut {
				t.Fatalf("got %+v", got)
			}
			if _, release, err := w.Guest(t.Context(), control.DefaultProject, s.ID); err != nil {
				t.Fatalf("its evidence cannot be read: %v", err)
			} else {
				release()
			}
			if res, err := w.Resume(t.Context(), control.DefaultProject, id(s)); err != nil || res[0].Err == nil || res[0].Err.Reason != errdefs.TimedOut {
				t.Fatalf("resume: %+v %v", res, err)
			}
			if stop {
				if _, err := w.Stop(t.Context(), control.DefaultProject, id(s), "read it"); err != nil {
					t.Fatal(err)
				}
			} else {
				time.Sleep(2 * time.Minute)
			}
			if got := w.get(s.ID); got.Phase != "FAILED" || got.Error.Class != errdefs.Limit || got.Error.Reason != errdefs.TimedOut {
				t.Fatalf("got %+v", got)
			}
		})
	}
}

// TestFailedWrites: while the database refuses, nothing that must be durable is
// told, and everything is once it takes writes again.
func TestFailedWrites(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	a, b := w.one(), w.one()
	if err := w.store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+w.path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	exec(`create trigger broken before update on sessions begin select raise(abort, 'broken'); end`)
	exec(`create trigger full before insert on sessions begin select raise(abort, 'broken'); end`)
	if res := w.create(request(1)); res[0].Err == nil || res[0].Err.Class != errdefs.Infrastructure || res[0].Session != nil {
		t.Fatalf("created without a row: %+v", res)
	}
	if res, err := w.Suspend(t.Context(), control.DefaultProject, id(b)); err != nil || res[0].Err != nil {
		t.Fatalf("what is written behind must not wait: %+v %v", res, err)
	}
	done := make(chan []control.StopResult)
	go func() {
		res, err := w.Stop(t.Context(), control.DefaultProject, id(a), "")
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	eventually(t, "the box is gone", func() bool { return w.node.count() == 1 })
	if got := w.get(a.ID); got.Phase != "RUNNING" {
		t.Fatalf("an end was told that is not durable: %+v", got)
	}
	exec(`drop trigger broken`)
	exec(`drop trigger full`)
	if res := <-done; res[0].Err != nil || res[0].Session.Phase != "COMPLETED" {
		t.Fatalf("got %+v", res)
	}
	eventually(t, "the suspended row is repaired", func() bool {
		rec, err := w.store.Get(t.Context(), b.ID)
		return err == nil && rec.Phase == session.Suspended
	})
}
