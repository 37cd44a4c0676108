package control_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/spec"
)

// slowDisk keeps the store from writing until the returned function is called.
func (w *world) slowDisk() (end func()) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := db.Conn(context.Background())
	if err == nil {
		_, err = conn.ExecContext(context.Background(), "begin immediate")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if _, err := conn.ExecContext(context.Background(), "rollback"); err != nil {
			w.t.Error(err)
		}
		_ = conn.Close()
		_ = db.Close()
	})
}

// A run time that is over before the insert is durable leads to the audit all the same.
func TestRunTimeOverBeforeTheSessionRuns(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	end := w.slowDisk()
	defer end()
	w.node.onCreate = func(_ context.Context, req node.CreateRequest) error {
		w.node.events <- node.Event{Kind: node.RuntimeOver, Session: req.Session}
		return nil
	}
	made := make(chan control.CreateResult)
	go func() { made <- w.create(request(1))[0] }()
	eventually(t, "the box is made", func() bool { return w.node.count() == 1 })
	time.Sleep(20 * time.Millisecond) // the event is heard
	end()
	s := (<-made).Session
	w.node.onCreate = nil
	w.wait(s.ID, "SUSPENDED")
	if got := w.get(s.ID); got.Desired != "audit" {
		t.Errorf("got %+v", got)
	}
}

// A session that is stopped before its insert is durable leaves no row and no quota behind.
func TestStopOvertakesTheInsert(t *testing.T) {
	w := newWorld(t, 1, spec.Scheduler{QueueLength: 10, MaxActiveSessions: 1})
	defer w.end()
	w.one()
	end := w.slowDisk()
	defer end()
	var calls sync.WaitGroup
	for range 3 { // they wait in the queue
		calls.Go(func() { _, _ = w.Create(context.Background(), control.DefaultProject, request(1)) })
	}
	eventually(t, "they wait", func() bool { return w.Gauges().Waiting == 3 })
	calls.Go(func() { _, _ = w.Stop(context.Background(), control.DefaultProject, control.Selector{All: true}, "") })
	time.Sleep(10 * time.Millisecond)
	end()
	calls.Wait()
}

// Many creates with one key give one session, whenever they come.
func TestOneKeyManyCreates(t *testing.T) {
	w := newWorld(t, 100, spec.Scheduler{})
	defer w.end()
	for round := range 10 {
		req := request(1)
		req.Key = fmt.Sprint("key-", round)
		var calls sync.WaitGroup
		ids := make([]string, 12)
		for i := range ids {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * 200 * time.Microsecond) // some come when the first has its answer
				res, err := w.Create(context.Background(), control.DefaultProject, req)
				if err != nil || res[0].Err != nil {
					t.Errorf("round %d, call %d: %+v, %v", round, i, res, err)
					return
				}
				ids[i] = res[0].Session.ID
			})
		}
		calls.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("two sessions for one key: %v", ids)
			}
		}
	}
}

func TestSuspendedForTooLong(t *testing.T) {
	w := newWorld(t, 10, spec.Scheduler{})
	defer w.end()
	a, b := w.one(), w.one()
	if w.node.claims[a.ID].MaxSuspended != 24*time.Hour {
		t.Errorf("the node was told %v", w.node.claims[a.ID].MaxSuspended)
	}
	for _, s := range []*control.Session{a, b} {
		if res, err := w.Suspend(t.Context(), control.DefaultProject, id(s)); err != nil || res[0].Err != nil {
			t.Fatalf("%+v %v", res, err)
		}
	}
	if err := w.Heartbeat(t.Context(), control.DefaultProject, a.ID); err != nil { // which is no use of it
		t.Fatal(err)
	}
	if res, err := w.Resume(t.Context(), control.DefaultProject, id(b)); err != nil || res[0].Err != nil {
		t.Fatalf("%+v %v", res, err)
	}
	for _, s := range []*control.Session{a, b} {
		w.node.events <- node.Event{Kind: node.SuspendedOver, Session: s.ID}
	}
	if got := w.wait(a.ID, "COMPLETED"); got.Reason != "suspended for 24h0m0s" {
		t.Errorf("reason %q", got.Reason)
	}
	if got := w.get(b.ID); got.Phase != "RUNNING" {
		t.Errorf("what was resumed meanwhile is %s", got.Phase)
	}
}

// The code of sessions that wait for a box is bounded, and given back when they have one or end.
func TestQueuedCodeIsBounded(t *testing.T) {
	w := newWorld(t, 1, spec.Scheduler{QueueLength: 100})
	defer w.end()
	w.Close()
	w.cfg.MaxCode = 100
	w.start()
	w.one()
	req := request(2)
	req.Code, req.NoWait = make([]byte, 60), true
	for range 2 {
		if res := w.create(req); res[0].Err != nil || res[1].Err != nil {
			t.Fatalf("%+v", res)
		}
		res := w.create(req)
		if e := res[0].Err; e == nil || e.Class != errdefs.Limit || !e.Retryable {
			t.Fatalf("more than is kept: %+v", res)
		}
		if _, err := w.Stop(t.Context(), control.DefaultProject, control.Selector{Job: "job"}, ""); err != nil {
			t.Fatal(err)
		}
		w.one()
	}
}
