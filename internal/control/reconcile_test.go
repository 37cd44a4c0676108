package control_test

import (
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store"
)

// TestReconcile puts rows and boxes as a crash may leave them.
func TestReconcile(t *testing.T) {
	place, start := session.Place{Node: "local"}, session.Start{Box: "box"}
	timedOut := errdefs.Limitf(errdefs.TimedOut, "session", "", "over")
	type box struct {
		state node.State
		cause node.EventKind
	}
	for _, c := range []struct {
		name     string
		evs      []session.Event
		attached bool // its caller waited without a key
		payload  bool
		box      *box
		phase    string // "" when it is forgotten
		class    errdefs.Class
		desired  string
	}{
		{name: "pending is queued again", phase: "RUNNING"},
		{name: "pending with secrets", payload: true, phase: "FAILED", class: errdefs.Infrastructure},
		{name: "pending whose caller is gone", attached: true, phase: ""},
		{name: "pending, placement not written", box: &box{state: node.Live}, phase: "RUNNING"},
		{name: "scheduled, box made", evs: []session.Event{place}, payload: true, attached: true, box: &box{state: node.Live}, phase: "RUNNING"},
		{name: "scheduled, no box", evs: []session.Event{place}, phase: "RUNNING"},
		{name: "scheduled with secrets, no box", evs: []session.Event{place}, payload: true, phase: "FAILED", class: errdefs.Infrastructure},
		{name: "scheduled, half-made box", evs: []session.Event{place}, box: &box{state: node.Destroying}, phase: "RUNNING"},
		{name: "running", evs: []session.Event{place, start}, box: &box{state: node.Live}, phase: "RUNNING"},
		{name: "running, machine rebooted", evs: []session.Event{place, start}, phase: "FAILED", class: errdefs.Infrastructure},
		{name: "running, died meanwhile", evs: []session.Event{place, start}, box: &box{node.Lost, node.BoxLost}, phase: "FAILED", class: errdefs.Policy},
		{name: "running, node failed", evs: []session.Event{place, start}, box: &box{node.Lost, node.BoxFailed}, phase: "FAILED", class: errdefs.Infrastructure},
		{name: "running, frozen", evs: []session.Event{place, start}, box: &box{state: node.Suspended}, phase: "SUSPENDED", desired: "suspended"},
		{name: "running, in audit", evs: []session.Event{place, start}, box: &box{state: node.Audit}, phase: "SUSPENDED", desired: "audit"},
		{name: "suspended", evs: []session.Event{place, start, session.Suspend{}, session.Frozen{}}, box: &box{state: node.Suspended}, phase: "SUSPENDED", desired: "suspended"},
		{name: "suspended, thawed", evs: []session.Event{place, start, session.Suspend{}, session.Frozen{}}, box: &box{state: node.Live}, phase: "RUNNING", desired: "running"},
		{name: "in audit", evs: []session.Event{place, start, session.Audit{Err: timedOut}}, box: &box{state: node.Audit}, phase: "SUSPENDED", desired: "audit"},
		{name: "stopping", evs: []session.Event{place, start, session.Stop{Reason: "x"}}, box: &box{state: node.Live}, phase: "COMPLETED"},
		{name: "stopping, box gone", evs: []session.Event{place, start, session.Stop{Reason: "x"}}, phase: "COMPLETED"},
		{name: "failing", evs: []session.Event{place, start, session.Fail{Err: timedOut}}, box: &box{state: node.Lost, cause: node.BoxLost}, phase: "FAILED", class: errdefs.Limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 10, spec.Scheduler{QueueLength: 10})
			defer w.end()
			w.Close()
			now := time.Now().Truncate(time.Microsecond)
			rec := &store.Session{
				Row: session.New(session.NewID(now, [9]byte{}), now), Project: control.DefaultProject, Request: "r", Template: "base@0123456789ab",
				Detached: !c.attached, Payload: c.payload, Spec: spec.Resolve(spec.Sandbox{}, spec.Sandbox{}),
			}
			for _, ev := range c.evs {
				next, _, err := session.Apply(rec.Row, ev, now)
				if err != nil {
					t.Fatal(err)
				}
				rec.Row = next
			}
			if refused, err := w.store.Insert(t.Context(), store.Insert{Project: control.DefaultProject, Sessions: []*store.Session{rec}}); err != nil || refused[0] != nil {
				t.Fatal(refused, err)
			}
			if c.box != nil {
				w.node.live[rec.ID] = &fakeBox{Inventory: node.Inventory{Session: rec.ID, Box: "box", State: string(c.box.state), Cause: c.box.cause}}
			}
			w.node.live["orphan"] = &fakeBox{Inventory: node.Inventory{Session: "orphan", Box: "o", State: string(node.Live)}}
			w.start()
			defer eventually(t, "the orphan is gone", func() bool {
				w.node.mu.Lock()
				defer w.node.mu.Unlock()
				return w.node.live["orphan"] == nil
			})
			if c.phase == "" {
				eventually(t, "it is forgotten", func() bool {
					_, err := w.Get(t.Context(), control.DefaultProject, rec.ID)
					return err != nil
				})
				return
			}
			got := w.wait(rec.ID, c.phase)
			if c.class == "" != (got.Error == nil || got.Desired == "audit") || c.class != "" && got.Error.Class != c.class || c.desired != "" && got.Desired != c.desired {
				t.Fatalf("got %+v, error %v", got, got.Error)
			}
			if c.phase == "RUNNING" {
				if _, release, err := w.Guest(t.Context(), control.DefaultProject, rec.ID); err != nil {
					t.Fatal(err)
				} else {
					release()
				}
			}
		})
	}
}
