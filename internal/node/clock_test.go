package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// virtual runs fn on a node whose clocks are virtual.
func virtual(t *testing.T, fn func(r *rig), change ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		change = append(change, func(c *Config) { c.boot = func() time.Duration { return time.Since(start) + time.Hour } })
		r := newRig(t, change...)
		fn(r)
		if err := r.node.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) createWith(session string, idle, run time.Duration) {
	r.t.Helper()
	q := request(session)
	q.MaxIdle, q.MaxRuntime = idle, run
	if _, err := r.node.Create(context.Background(), q); err != nil {
		r.t.Fatal(err)
	}
}

// quiet asserts that no event comes for d.
func (r *rig) quiet(d time.Duration) {
	r.t.Helper()
	select {
	case e := <-r.node.Events():
		r.t.Fatalf("event %s of %s", e.Kind, e.Session)
	case <-time.After(d):
	}
}

// after asserts that the next event is kind and comes d from now.
func (r *rig) after(d time.Duration, kind EventKind) {
	r.t.Helper()
	start := time.Now()
	select {
	case e := <-r.node.Events():
		if e.Kind != kind {
			r.t.Fatalf("event %s, want %s", e.Kind, kind)
		}
		if got := time.Since(start); got < d || got > d+time.Second {
			r.t.Fatalf("%s after %v, want %v", kind, got, d)
		}
	case <-time.After(d + time.Minute):
		r.t.Fatalf("no %s within %v", kind, d+time.Minute)
	}
}

func TestIdleClock(t *testing.T) {
	virtual(t, func(r *rig) {
		r.createWith("s", 5*time.Minute, 0)
		r.after(5*time.Minute, IdleExpired)
		r.after(5*time.Minute, IdleExpired) // it is told again while nothing is done about it

		_, release, err := r.node.Acquire(context.Background(), "s")
		if err != nil {
			r.t.Fatal(err)
		}
		r.quiet(time.Hour)
		release()
		release() // a second call does nothing
		r.after(5*time.Minute, IdleExpired)
	})
}

func TestIdleClockCountsDetachedOps(t *testing.T) {
	virtual(t, func(r *rig) {
		r.createWith("s", 5*time.Minute, 0)
		_, release, err := r.node.Acquire(context.Background(), "s")
		if err != nil {
			r.t.Fatal(err)
		}
		release()
		started := time.Now()
		r.guests.set(guestproto.OpInfo{OpID: "op", Running: true, StartedUnix: started.UnixNano()})
		r.quiet(time.Hour + 2*time.Minute) // between two looks of the clock
		// It ended a minute ago, and nobody was there.
		wall := time.Since(started) - time.Minute
		r.guests.set(guestproto.OpInfo{OpID: "op", StartedUnix: started.UnixNano(), Result: &guestproto.Result{WallMs: float64(wall.Milliseconds())}})
		r.after(4*time.Minute, IdleExpired)
	})
}

func TestIdleClockIgnoresTheBackground(t *testing.T) {
	virtual(t, func(r *rig) {
		r.createWith("s", 5*time.Minute, 0)
		r.guests.set(guestproto.OpInfo{OpID: "bg", Running: true, Background: true, StartedUnix: time.Now().UnixNano()})
		_, release, err := r.node.Acquire(context.Background(), "s")
		if err != nil {
			r.t.Fatal(err)
		}
		release()
		r.after(5*time.Minute, IdleExpired)
	})
}

func TestRuntimeClockLeavesOutSuspension(t *testing.T) {
	virtual(t, func(r *rig) {
		ctx := context.Background()
		r.createWith("s", 0, 30*time.Minute)
		time.Sleep(10 * time.Minute)
		for range 2 { // idempotent
			if err := r.node.Suspend(ctx, "s"); err != nil {
				r.t.Fatal(err)
			}
		}
		if _, _, err := r.node.Acquire(ctx, "s"); errdefs.From(err).Reason != errdefs.Conflict {
			r.t.Errorf("acquire of a suspended box: %v", err)
		}
		r.quiet(5 * time.Hour)
		for range 2 {
			if err := r.node.Resume(ctx, "s"); err != nil {
				r.t.Fatal(err)
			}
		}
		r.after(20*time.Minute, RuntimeOver)
		synctest.Wait()
		if got := r.states()["s"]; got != Audit {
			r.t.Errorf("state %q", got)
		}
		if !r.rt.Box(r.create("s").Box).AgentKilled() {
			r.t.Error("its processes were not killed")
		}
	})
}

func TestAuditReadsAndRefuses(t *testing.T) {
	virtual(t, func(r *rig) {
		ctx := context.Background()
		r.createWith("s", time.Minute, 30*time.Second)
		r.after(30*time.Second, RuntimeOver)
		synctest.Wait()
		g, release, err := r.node.Acquire(ctx, "s")
		if err != nil {
			r.t.Fatal(err)
		}
		defer release()
		if _, err := g.List(ctx); err != nil {
			r.t.Errorf("list: %v", err)
		}
		_, err = g.Run(ctx, guestproto.ExecRequest{})
		if e := errdefs.From(err); e.Class != errdefs.Limit || e.Reason != errdefs.TimedOut {
			r.t.Errorf("run: %v", err)
		}
		if err := r.node.Resume(ctx, "s"); errdefs.From(err).Reason != errdefs.TimedOut {
			r.t.Errorf("resume: %v", err)
		}
		r.quiet(time.Hour)
		r.destroy("s")
		r.empty()
	})
}

func TestClocksGoOnAfterARestart(t *testing.T) {
	virtual(t, func(r *rig) {
		r.createWith("s", 0, 30*time.Minute)
		time.Sleep(10 * time.Minute)
		if err := r.node.Suspend(context.Background(), "s"); err != nil {
			r.t.Fatal(err)
		}
		r.crash()
		time.Sleep(time.Hour)
		r.start()
		if err := r.node.Resume(context.Background(), "s"); err != nil {
			r.t.Fatal(err)
		}
		r.crash()
		r.start() // the suspended time is known after a compaction, too
		r.after(20*time.Minute, RuntimeOver)
	})
}

func TestUnusedConnectionIsClosed(t *testing.T) {
	virtual(t, func(r *rig) {
		r.createWith("s", 0, 0)
		_, release, err := r.node.Acquire(context.Background(), "s")
		if err != nil {
			r.t.Fatal(err)
		}
		s := r.node.session("s")
		time.Sleep(time.Hour)
		if s.guest.Load() == nil {
			r.t.Error("a connection in use was closed")
		}
		release()
		time.Sleep(idleConn + 2*watchInterval)
		if s.guest.Load() != nil {
			r.t.Error("an unused connection is still open")
		}
	})
}

func TestSuspensionEnds(t *testing.T) {
	virtual(t, func(r *rig) {
		ctx := context.Background()
		q := request("s")
		q.MaxIdle, q.MaxRuntime, q.MaxSuspended = time.Minute, 30*time.Minute, 24*time.Hour
		if _, err := r.node.Create(ctx, q); err != nil {
			r.t.Fatal(err)
		}
		if err := r.node.Suspend(ctx, "s"); err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(10 * time.Hour)
		r.crash() // the time without a daemon counts
		time.Sleep(4 * time.Hour)
		r.start()
		r.after(10*time.Hour, SuspendedOver)
		r.after(tellAgain, SuspendedOver) // whoever missed it hears it again
		if err := r.node.Resume(ctx, "s"); err != nil {
			r.t.Fatal(err)
		}
		r.after(time.Minute, IdleExpired)
		if err := r.node.Suspend(ctx, "s"); err != nil {
			r.t.Fatal(err)
		}
		r.quiet(23 * time.Hour) // each suspension has its own clock
	})
}
