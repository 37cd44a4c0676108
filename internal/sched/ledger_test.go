package sched_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/sched"
)

func TestLedger(t *testing.T) {
	const gi = int64(1) << 30
	for _, c := range []struct {
		name   string
		have   []sched.Demand
		ask    sched.Demand
		class  errdefs.Class
		reason errdefs.Reason
	}{
		{name: "fits", ask: sched.Demand{Memory: 2 * gi, CPU: 2}},
		{name: "memory is promised once", have: []sched.Demand{{Memory: 3 * gi}}, ask: sched.Demand{Memory: 2 * gi}, class: errdefs.Limit, reason: errdefs.NodeFull},
		{name: "cpu is promised one and a half times", have: []sched.Demand{{CPU: 2}}, ask: sched.Demand{CPU: 1}},
		{name: "and not more", have: []sched.Demand{{CPU: 2}, {CPU: 1}}, ask: sched.Demand{CPU: 0.001}, class: errdefs.Limit, reason: errdefs.NodeFull},
		{name: "never fits", ask: sched.Demand{Memory: 5 * gi}, class: errdefs.User, reason: errdefs.NodeFull},
		{name: "negative", ask: sched.Demand{Memory: -1}, class: errdefs.User, reason: errdefs.InvalidArgument},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := sched.NewLedger(sched.Demand{Memory: 4 * gi, CPU: 2}, sched.Ratios{})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range c.have {
				if err := l.Admit(d); err != nil {
					t.Fatal(err)
				}
			}
			err = l.Admit(c.ask)
			if c.class == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if e := errdefs.From(err); e == nil || e.Class != c.class || e.Reason != c.reason || e.Remedy == "" {
				t.Fatalf("got %#v", e)
			}
			if sched.Never(err) != (c.class == errdefs.User) {
				t.Fatalf("Never(%v)", err)
			}
		})
	}
}

func TestLedgerRefusesMemoryOvercommit(t *testing.T) {
	if _, err := sched.NewLedger(sched.Demand{}, sched.Ratios{Memory: 1.01}); err == nil {
		t.Fatal("taken")
	}
}

// What can never fit is told by the field that is too large, and by no other.
func TestNeverSaysWhich(t *testing.T) {
	l, _ := sched.NewLedger(sched.Demand{Memory: 4 << 30, CPU: 2}, sched.Ratios{})
	for _, c := range []struct {
		ask         sched.Demand
		says, lower string
	}{
		{sched.Demand{Memory: 5 << 30}, "memory 5Gi can never fit: the node may promise 4Gi in all", "mem_limit"},
		{sched.Demand{Memory: 1 << 30, CPU: 9}, "cpu 9 can never fit", "cpu_request"},
	} {
		if e := errdefs.From(l.Admit(c.ask)); !strings.HasPrefix(e.Message, c.says) || !strings.Contains(e.Remedy, c.lower) {
			t.Errorf("%+v: %s (%s)", c.ask, e.Message, e.Remedy)
		}
	}
}

// TestLedgerNeverOverPromises also checks that claims (Replace) and releases balance to zero.
func TestLedgerNeverOverPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, _ := sched.NewLedger(sched.Demand{Memory: 1000, CPU: 4}, sched.Ratios{})
		demand := rapid.Custom(func(t *rapid.T) sched.Demand {
			return sched.Demand{Memory: rapid.Int64Range(0, 500).Draw(t, "mem"), CPU: float64(rapid.IntRange(0, 30).Draw(t, "cpu")) / 10}
		})
		var live []sched.Demand
		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				if d := demand.Draw(t, "d"); l.Admit(d) == nil {
					live = append(live, d)
				}
			},
			"replace": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "i")
				if d := demand.Draw(t, "d"); l.Replace(live[i], d) == nil {
					live[i] = d
				}
			},
			"release": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip()
				}
				l.Release(live[0])
				live = live[1:]
			},
			"": func(t *rapid.T) {
				var mem int64
				for _, d := range live {
					mem += d.Memory
				}
				p := l.Promised()
				if p.Memory != mem || p.Memory > 1000 || p.CPU > 6 {
					t.Fatalf("promised %+v, live %d", p, mem)
				}
			},
		})
		for _, d := range live {
			l.Release(d)
		}
		if p := l.Promised(); p != (sched.Demand{}) {
			t.Fatalf("%+v left", p)
		}
	})
}
