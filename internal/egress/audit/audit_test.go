package audit

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

func TestFloodIsCountedNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []egress.Decision
		r := New(egress.SinkFunc(func(d egress.Decision) { got = append(got, d) }), egress.Identity{Box: "b", Session: "s", Project: "p", Op: func() string { return "op1" }})
		p, err := policy.Compile(policy.Spec{Limits: policy.Limits{AuditPerSecond: 10}}, policy.Options{Phase: "agent"})
		if err != nil {
			t.Fatal(err)
		}
		r.Policy(p)
		const flood = 100_000
		for range flood {
			r.Record(egress.Decision{Kind: egress.Connect, Verdict: egress.Deny, Reason: policy.UDPNotAllowed})
		}
		time.Sleep(2 * settle)
		synctest.Wait()
		n := int64(0)
		for _, d := range got {
			n += max(d.Count, 1)
			if d.Session != "s" || d.Phase != "agent" || d.Op == "" && d.Kind == egress.Connect || d.Time.IsZero() {
				t.Fatalf("%+v", d)
			}
		}
		last := got[len(got)-1]
		if n != flood || len(got) != 21 || last.Kind != egress.Suppressed {
			t.Errorf("%d records stand for %d, the last is %+v", len(got), n, last)
		}
		if c := r.Counts.Refused.Load(); c != flood {
			t.Errorf("%d counted", c)
		}
		for range 50 {
			r.Record(egress.Decision{Verdict: egress.Deny})
		}
		r.Close()
		if last := got[len(got)-1]; last.Kind != egress.Suppressed || last.Count == 0 {
			t.Errorf("the close tells %+v", last)
		}
	})
}
