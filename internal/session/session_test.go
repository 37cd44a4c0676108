package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
)

var t0 = time.Unix(1_800_000_000, 0)

var (
	timedOut = errdefs.Limitf(errdefs.TimedOut, "session s", "raise max_runtime_seconds", "max_runtime passed")
	tampered = errdefs.Policyf(errdefs.BoxTampered, "session s", "", "the guest died")
	nodeLost = errdefs.Infraf(errdefs.ScopeNode, errdefs.BoxGone, "node n", "the node was lost")
)

// after applies events that must all be legal.
func after(t *testing.T, events ...session.Event) session.Row {
	t.Helper()
	r := session.New("s", t0)
	for _, ev := range events {
		next, _, err := session.Apply(r, ev, t0)
		if err != nil {
			t.Fatalf("%T: %v", ev, err)
		}
		r = next
	}
	return r
}

var (
	placed  = []session.Event{session.Place{Node: "n"}}
	started = append(placed[:1:1], session.Start{Box: "b"})
	frozen  = append(started[:2:2], session.Suspend{}, session.Frozen{})
	audited = append(started[:2:2], session.Audit{Err: timedOut})
	stopped = append(started[:2:2], session.Stop{Reason: "done"})
	ended   = append(stopped[:3:3], session.Reclaimed{})
)

func TestApply(t *testing.T) {
	for _, c := range []struct {
		name    string
		given   []session.Event
		ev      session.Event
		want    string // "PHASE desired reclaim"
		effects []session.Effect
	}{
		{"place", nil, session.Place{Node: "n"}, "SCHEDULED running none", []session.Effect{session.CreateBox}},
		{"node refuses", placed, session.Refuse{Reason: "full"}, "PENDING running none", []session.Effect{session.Enqueue}},
		{"starts", placed, session.Start{Box: "b"}, "RUNNING running none", nil},
		{"suspend", started, session.Suspend{}, "RUNNING suspended none", []session.Effect{session.FreezeBox}},
		{"resume", frozen, session.Resume{}, "SUSPENDED running none", []session.Effect{session.ThawBox}},
		{"thawed", append(frozen[:4:4], session.Resume{}), session.Thawed{}, "RUNNING running none", nil},
		{"audit", started, session.Audit{Err: timedOut}, "SUSPENDED audit none", nil},
		{"audit of a suspended one", frozen, session.Audit{Err: timedOut}, "SUSPENDED audit none", nil},
		{"stop", started, session.Stop{}, "RUNNING stopped pending", []session.Effect{session.DestroyBox}},
		{"stop in audit", audited, session.Stop{}, "SUSPENDED stopped pending", []session.Effect{session.DestroyBox}},
		{"stop while placed", placed, session.Stop{}, "SCHEDULED stopped pending", []session.Effect{session.DestroyBox}},
		{"stop while pending", nil, session.Stop{}, "FAILED stopped acked", []session.Effect{session.Finished}},
		{"ack", stopped, session.Reclaimed{}, "COMPLETED stopped acked", []session.Effect{session.Finished}},
		{"ack in audit", append(audited[:3:3], session.Stop{}), session.Reclaimed{}, "FAILED stopped acked", []session.Effect{session.Finished}},
		{"fail", started, session.Fail{Err: tampered}, "RUNNING stopped pending", []session.Effect{session.DestroyBox}},
		{"fail after a stop", stopped, session.Fail{Err: tampered}, "RUNNING stopped pending", nil},
		{"ack after a failure", append(started[:2:2], session.Fail{Err: tampered}), session.Reclaimed{}, "FAILED stopped acked", []session.Effect{session.Finished}},
		{"fence", started, session.Fence{Err: nodeLost}, "FAILED stopped fenced", []session.Effect{session.Finished}},
		{"fence after a stop", stopped, session.Fence{Err: nodeLost}, "COMPLETED stopped fenced", []session.Effect{session.Finished}},
		{"stop after the end", ended, session.Stop{}, "COMPLETED stopped acked", nil},
		{"fail after the end", ended, session.Fail{Err: tampered}, "COMPLETED stopped acked", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, effects, err := session.Apply(after(t, c.given...), c.ev, t0)
			if err != nil {
				t.Fatal(err)
			}
			if s := fmt.Sprintf("%s %s %s", got.Phase, got.Desired, got.Reclaim); s != c.want || fmt.Sprint(effects) != fmt.Sprint(c.effects) {
				t.Fatalf("got %s %v, want %s %v", s, effects, c.want, c.effects)
			}
		})
	}
}

func TestIllegal(t *testing.T) {
	for _, c := range []struct {
		name  string
		given []session.Event
		ev    session.Event
	}{
		{"start before a placement", nil, session.Start{Box: "b"}},
		{"a second box", started, session.Start{Box: "other"}},
		{"a box without an id", placed, session.Start{}},
		{"a second node", placed, session.Place{Node: "other"}},
		{"refusal of a running one", started, session.Refuse{}},
		{"suspend before it runs", placed, session.Suspend{}},
		{"resume before it runs", nil, session.Resume{}},
		{"start while it ends", append(placed[:1:1], session.Stop{}), session.Start{Box: "b"}},
		{"suspend after the end", ended, session.Suspend{}},
		{"resume while it ends", stopped, session.Resume{}},
		{"ack that nobody asked for", started, session.Reclaimed{}},
		{"fence without a node", nil, session.Fence{Err: nodeLost}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := after(t, c.given...)
			got, effects, err := session.Apply(r, c.ev, t0)
			if !errors.Is(err, errdefs.ErrConflict) || effects != nil || got != r {
				t.Fatalf("got %+v %v %v", got, effects, err)
			}
		})
	}
	t.Run("resume in audit gives the verdict", func(t *testing.T) {
		_, _, err := session.Apply(after(t, audited...), session.Resume{}, t0)
		if !errors.Is(err, &errdefs.Error{Reason: errdefs.TimedOut}) {
			t.Fatal(err)
		}
	})
}

// TestMachine delivers any events in any order, repeated and late, beside a
// model of the node that carries out the effects.
func TestMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := session.New("s", t0)
		boxes, ever := map[string]bool{}, map[string]bool{} // alive; told to the row
		creating := 0
		var verdict *errdefs.Error
		var last session.Event
		deliver := func(t *rapid.T, ev session.Event) {
			before := r
			next, effects, err := session.Apply(r, ev, t0.Add(time.Duration(r.Version)*time.Second))
			if err != nil && next != before {
				t.Fatalf("%T failed and changed the row", ev)
			}
			changed := next != before
			if changed != (next.Version == before.Version+1) || !changed && next.Version != before.Version {
				t.Fatalf("%T: version %d → %d, changed %v", ev, before.Version, next.Version, changed)
			}
			if !changed && len(effects) > 0 {
				t.Fatalf("%T changed nothing and asks for %v", ev, effects)
			}
			if before.Phase.Terminal() && changed {
				t.Fatalf("%T changed a finished session", ev)
			}
			if next.Phase.Terminal() && next.Reclaim != session.ReclaimAcked && next.Reclaim != session.ReclaimFenced {
				t.Fatalf("%T: terminal with reclaim %s", ev, next.Reclaim)
			}
			if next.Phase == session.Completed && next.Error != nil || next.Phase == session.Failed && next.Error == nil {
				t.Fatalf("%T: %s with error %v", ev, next.Phase, next.Error)
			}
			if verdict != nil && next.Error != verdict {
				t.Fatalf("%T replaced the verdict", ev)
			}
			if next.Box != before.Box && before.Box != "" {
				t.Fatalf("%T replaced the box", ev)
			}
			verdict = next.Error
			if err == nil && changed { // at once a second time
				again, e2, err2 := session.Apply(next, ev, t0)
				if again != next || len(e2) > 0 {
					t.Fatalf("%T twice: %+v %v %v", ev, again, e2, err2)
				}
			}
			for _, e := range effects {
				switch e {
				case session.CreateBox:
					creating++
				case session.DestroyBox:
					creating = 0
					clear(boxes)
				}
			}
			if len(boxes) > 1 || creating > 1 || creating+len(boxes) > 1 {
				t.Fatalf("%T: boxes %v, creating %d", ev, boxes, creating)
			}
			if next.Phase.Terminal() && next.Reclaim == session.ReclaimAcked && creating+len(boxes) > 0 {
				t.Fatalf("%T: finished with boxes %v, creating %d", ev, boxes, creating)
			}
			r, last = next, ev
		}
		send := func(ev session.Event) func(*rapid.T) { return func(t *rapid.T) { deliver(t, ev) } }
		t.Repeat(map[string]func(*rapid.T){
			"place": send(session.Place{Node: "n"}),
			"refuse": func(t *rapid.T) {
				if creating > 0 { // only a creation that made nothing is refused
					creating--
					deliver(t, session.Refuse{Reason: "full"})
				}
			},
			"start": func(t *rapid.T) {
				if creating == 0 {
					t.Skip()
				}
				creating--
				box := fmt.Sprintf("b%d", len(ever))
				boxes[box], ever[box] = true, true
				deliver(t, session.Start{Box: box})
			},
			"stray start": func(t *rapid.T) {
				box := rapid.SampledFrom([]string{"b0", "b1", "x"}).Draw(t, "box")
				if r.Phase != session.Scheduled {
					deliver(t, session.Start{Box: box})
				}
			},
			"suspend":   send(session.Suspend{}),
			"resume":    send(session.Resume{}),
			"frozen":    send(session.Frozen{}),
			"thawed":    send(session.Thawed{}),
			"audit":     send(session.Audit{Err: timedOut}),
			"stop":      send(session.Stop{Reason: "asked"}),
			"fail":      send(session.Fail{Err: tampered}),
			"reclaimed": send(session.Reclaimed{}),
			"set deadline": func(t *rapid.T) {
				deliver(t, session.SetDeadline{
					At:       t0.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "at")) * time.Second),
					Lifetime: time.Duration(rapid.IntRange(0, 3).Draw(t, "lifetime")) * time.Second,
					Then:     rapid.SampledFrom([]session.Action{"", session.ActStop, session.ActSuspend}).Draw(t, "then"),
					Extend:   rapid.Bool().Draw(t, "extend"),
				})
			},
			"expire": func(t *rapid.T) {
				deliver(t, session.Expire{Then: rapid.SampledFrom([]session.Action{session.ActStop, session.ActSuspend}).Draw(t, "then")})
			},
			"fence": send(session.Fence{Err: nodeLost}),
			"again": func(t *rapid.T) {
				if last == nil {
					t.Skip()
				}
				deliver(t, last)
			},
		})
	})
}

func TestNewID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := func(name string) (time.Time, [9]byte) {
			var e [9]byte
			copy(e[:], rapid.SliceOfN(rapid.Byte(), 9, 9).Draw(t, name))
			return time.UnixMicro(rapid.Int64Range(0, 1<<54).Draw(t, name+" time")), e
		}
		ta, ea := gen("a")
		tb, eb := gen("b")
		a, b := session.NewID(ta, ea), session.NewID(tb, eb)
		if !session.ValidID(a) || !session.ValidID(b) {
			t.Fatalf("%q or %q is not valid", a, b)
		}
		if ta != tb && ta.Before(tb) != (a < b) {
			t.Fatalf("%q and %q do not sort by time", a, b)
		}
	})
	for _, s := range []string{"", "s", strings.Repeat("s", 25), strings.Repeat("a", 26), "s" + strings.Repeat("A", 25), "s" + strings.Repeat("-", 25)} {
		if session.ValidID(s) {
			t.Errorf("%q is taken as an id", s)
		}
	}
}

func TestReached(t *testing.T) {
	for _, c := range []struct {
		p, q session.Phase
		want bool
	}{
		{session.Pending, session.Pending, true},
		{session.Pending, session.Scheduled, false},
		{session.Running, session.Scheduled, true},
		{session.Running, session.Suspended, false},
		{session.Suspended, session.Running, true},
		{session.Running, session.Failed, false},
		{session.Failed, session.Completed, true},
		{session.Completed, session.Running, true},
	} {
		if c.p.Reached(c.q) != c.want {
			t.Errorf("%s reached %s: %v", c.p, c.q, !c.want)
		}
	}
}
