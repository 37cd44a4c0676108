package control_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/spec"
)

const project = control.DefaultProject

func (w *world) lease(ttl time.Duration, onExpiry string) string {
	w.t.Helper()
	l, err := w.CreateLease(w.t.Context(), project, control.LeaseRequest{TTL: ttl, OnExpiry: onExpiry})
	if err != nil {
		w.t.Fatal(err)
	}
	return l.ID
}

func owned(n int, lease string) control.CreateRequest {
	req := request(n)
	req.Lease = lease
	return req
}

func (w *world) renew(id string) {
	w.t.Helper()
	if _, err := w.RenewLease(w.t.Context(), project, id); err != nil {
		w.t.Error(err)
	}
}

// TestSilentOwner: 300 sessions of an owner that falls silent end in time, and say
// why; those of others do not.
func TestSilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1000, spec.Scheduler{})
		defer w.end()
		silent, alive := w.lease(30*time.Second, ""), w.lease(30*time.Second, "")
		mine := w.create(owned(300, silent))
		other, none := w.create(owned(1, alive))[0].Session, w.one()
		for range 4 { // signs of life are heard
			time.Sleep(20 * time.Second)
			w.renew(silent)
			w.renew(alive)
		}
		time.Sleep(29 * time.Second)
		w.renew(alive)
		if got := w.get(mine[0].Session.ID); got.Phase != "RUNNING" || got.Lease != silent {
			t.Fatalf("before its ttl is over: %+v", got)
		}
		time.Sleep(3 * time.Second)
		for _, r := range mine {
			got := w.get(r.Session.ID)
			if got.Phase != "FAILED" || got.Reclaim != "acked" || got.Error.Class != errdefs.Limit || got.Error.Reason != errdefs.OwnerLost || !strings.Contains(got.Reason, "30s") {
				t.Fatalf("got %+v", got)
			}
		}
		for _, s := range []*control.Session{other, none} {
			if got := w.get(s.ID); got.Phase != "RUNNING" {
				t.Fatalf("another's session: %+v", got)
			}
		}
		if _, err := w.RenewLease(t.Context(), project, silent); errdefs.From(err).Reason != errdefs.OwnerLost {
			t.Fatalf("renewed: %v", err)
		}
		if res := w.create(owned(2, silent)); res[0].Err == nil || res[0].Err.Reason != errdefs.OwnerLost || res[1].Err == nil {
			t.Fatalf("created for a lease that expired: %+v", res)
		}
		if n := w.Counters().OwnersLost.Load(); n != 1 {
			t.Fatalf("%d owners lost", n)
		}
	})
}

func TestSilentOwnerSuspends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, spec.Scheduler{MaxActiveSessions: 4, QueueLength: 4})
		defer w.end()
		id := w.lease(10*time.Second, control.SuspendSessions)
		mine := w.create(owned(4, id))
		req := owned(1, id)
		req.NoWait = true
		waiting := w.create(req)[0].Session
		broken := mine[3].Session
		w.node.mu.Lock()
		w.node.onSuspend = func(session string) error {
			if session == broken.ID {
				return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "cgroup", "cannot be frozen")
			}
			return nil
		}
		w.node.mu.Unlock()
		time.Sleep(11 * time.Second)
		for _, r := range mine[:3] {
			if got := w.get(r.Session.ID); got.Phase != "SUSPENDED" || got.Reason != "its owner was silent for 10s" {
				t.Fatalf("got %+v", got)
			}
		}
		// What cannot be suspended does not live on without an owner.
		for _, s := range []*control.Session{waiting, broken} {
			if got := w.get(s.ID); got.Phase != "FAILED" || got.Error.Reason != errdefs.OwnerLost {
				t.Fatalf("got %+v", got)
			}
		}
		w.restart()
		if revived, err := w.RenewLease(t.Context(), project, id); err != nil || !revived {
			t.Fatalf("revived: %v %v", revived, err)
		}
		if l, err := w.GetLease(t.Context(), project, id); err != nil || l.Ending != "" || l.Sessions != 3 {
			t.Fatalf("got %+v %v", l, err)
		}
		time.Sleep(9 * time.Second)
		w.renew(id)
		if res, err := w.Resume(t.Context(), project, control.Selector{Lease: id}); err != nil || len(res) != 3 || res[0].Err != nil {
			t.Fatalf("resume: %+v %v", res, err)
		}
		time.Sleep(11 * time.Second)
		if got := w.get(mine[0].Session.ID); got.Phase != "SUSPENDED" {
			t.Fatalf("silent again: %+v", got)
		}
		if n, err := w.ReleaseLease(t.Context(), project, id, false); err != nil || n != 3 {
			t.Fatalf("released: %d %v", n, err)
		}
	})
}

func TestReleaseLease(t *testing.T) {
	w := newWorld(t, 100, spec.Scheduler{})
	defer w.end()
	stop, keep := w.lease(time.Hour, ""), w.lease(time.Hour, "")
	mine, kept := w.create(owned(20, stop)), w.create(owned(1, keep))
	for range 2 {
		if _, err := w.ReleaseLease(t.Context(), project, stop, false); err != nil {
			t.Fatal(err)
		}
		if _, err := w.ReleaseLease(t.Context(), project, keep, true); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range mine {
		if got := w.get(r.Session.ID); got.Phase != "COMPLETED" || got.Reclaim != "acked" {
			t.Fatalf("got %+v", got)
		}
	}
	w.restart()
	if got := w.get(kept[0].Session.ID); got.Phase != "RUNNING" || got.Lease != keep {
		t.Fatalf("kept: %+v", got)
	}
	for _, id := range []string{stop, keep} {
		if _, err := w.RenewLease(t.Context(), project, id); !errors.Is(err, errdefs.ErrConflict) {
			t.Fatalf("renewed after a release: %v", err)
		}
	}
	for _, id := range []string{"nobody", stop} {
		if _, err := w.GetLease(t.Context(), "other", id); !errors.Is(err, errdefs.ErrNotFound) {
			t.Fatalf("lease %s of another project: %v", id, err)
		}
	}
	if page, _, err := w.List(t.Context(), project, control.Filter{Lease: stop}); err != nil || len(page) != 20 {
		t.Fatalf("list: %d %v", len(page), err)
	}
}

// TestRestartIsNoSilence: while no server runs nobody can say that he lives.
func TestRestartIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, spec.Scheduler{})
		defer w.end()
		id := w.lease(10*time.Second, "")
		s := w.create(owned(1, id))[0].Session
		w.Close()
		time.Sleep(time.Hour)
		w.start()
		time.Sleep(9 * time.Second)
		if got := w.get(s.ID); got.Phase != "RUNNING" {
			t.Fatalf("got %+v", got)
		}
		time.Sleep(2 * time.Second)
		if got := w.get(s.ID); got.Phase != "FAILED" || got.Error.Reason != errdefs.OwnerLost {
			t.Fatalf("a silent owner after a restart: %+v", got)
		}
		w.restart()
		if _, err := w.RenewLease(t.Context(), project, id); errdefs.From(err).Reason != errdefs.OwnerLost {
			t.Fatalf("forgotten by a restart: %v", err)
		}
	})
}

// TestStandstillIsNoSilence: a server that stood still has not heard its clients.
func TestStandstillIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, spec.Scheduler{})
		defer w.end()
		w.Close()
		var mu sync.Mutex
		var jump time.Duration
		w.cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return time.Now().Add(jump) }
		w.start()
		id := w.lease(10*time.Second, "")
		s := w.create(owned(1, id))[0].Session
		mu.Lock()
		jump = time.Minute // the timer comes a minute late
		mu.Unlock()
		time.Sleep(15 * time.Second)
		if got := w.get(s.ID); got.Phase != "RUNNING" {
			t.Fatalf("got %+v", got)
		}
		time.Sleep(6 * time.Second)
		if got := w.get(s.ID); got.Phase != "FAILED" {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestLeaseByKey(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	req := control.LeaseRequest{Key: "trainer-7", TTL: time.Minute}
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			l, err := w.CreateLease(context.Background(), project, req)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = l.ID
		})
	}
	wg.Wait()
	w.restart()
	again, err := w.CreateLease(t.Context(), project, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if id != again.ID {
			t.Fatalf("got %v and %s", ids, again.ID)
		}
	}
	req.TTL = time.Hour
	if _, err := w.CreateLease(t.Context(), project, req); errdefs.From(err).Reason != errdefs.IdempotencyClash {
		t.Fatal(err)
	}
	if other, err := w.CreateLease(t.Context(), project, control.LeaseRequest{}); err != nil || other.ID == again.ID || other.TTL != control.DefaultTTL {
		t.Fatalf("got %+v %v", other, err)
	}
}

// TestLeaseEndsDuringCreate: no session is made for a lease that ended meanwhile.
func TestLeaseEndsDuringCreate(t *testing.T) {
	w := newWorld(t, 1000, spec.Scheduler{})
	defer w.end()
	for range 10 {
		id := w.lease(time.Hour, "")
		done := make(chan []control.CreateResult)
		go func() {
			res, err := w.Create(context.Background(), project, owned(200, id))
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		time.Sleep(time.Millisecond)
		if _, err := w.ReleaseLease(t.Context(), project, id, false); err != nil {
			t.Fatal(err)
		}
		<-done
		if l, err := w.GetLease(t.Context(), project, id); err != nil || l.Sessions != 0 {
			t.Fatalf("left: %+v %v", l, err)
		}
	}
}

// TestAnOwnedSessionDoesNotIdle: its owner lives and thinks.
func TestAnOwnedSessionDoesNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10, spec.Scheduler{})
		defer w.end()
		id := w.lease(time.Hour, "")
		s := w.create(owned(1, id))[0].Session
		idle := func() {
			w.node.mu.Lock()
			w.node.live[s.ID].idle = time.Hour
			w.node.mu.Unlock()
			w.node.events <- node.Event{Kind: node.IdleExpired, Session: s.ID}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		time.Sleep(30 * time.Minute)
		idle()
		if got := w.get(s.ID); got.Phase != "RUNNING" {
			t.Fatalf("its owner lives: %+v", got)
		}
		if _, err := w.ReleaseLease(t.Context(), project, id, true); err != nil {
			t.Fatal(err)
		}
		idle()
		if got := w.get(s.ID); got.Phase != "COMPLETED" {
			t.Fatalf("nobody owns it: %+v", got)
		}
	})
}
