package sched_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/sched"
)

var t0 = time.Unix(1_000_000, 0)

func TestPoolFollowsArrivals(t *testing.T) {
	p := sched.NewPool(sched.PoolConfig{MinIdle: 2, MaxIdle: 100}, t0)
	if got := p.Target(t0); got != 2 {
		t.Fatalf("idle target %d", got)
	}
	now := t0
	for range 100 { // 100 a second for 100 s, 200 ms each
		for range 100 {
			now = now.Add(10 * time.Millisecond)
			p.Arrive(now, 1)
		}
		p.Made(200 * time.Millisecond)
	}
	if r := p.Rate(now); math.Abs(r-100) > 5 {
		t.Fatalf("rate %v", r)
	}
	if got := p.Target(now); got < 36 || got > 44 { // 100/s × 0.2 s × 2
		t.Fatalf("target %d", got)
	}
	if got := p.Target(now.Add(5 * time.Minute)); got != 2 {
		t.Fatalf("target after silence %d", got)
	}
}

func TestPoolStartsFromTheDeclaredPeak(t *testing.T) {
	p := sched.NewPool(sched.PoolConfig{MinIdle: 50, MaxIdle: 200, Step: 20, DeclaredPeak: 100}, t0)
	if got := p.Target(t0); got != 150 {
		t.Fatalf("target %d", got)
	}
	if start, drop := p.Plan(t0, 0, 0); start != 20 || drop != 0 {
		t.Fatalf("plan %d %d", start, drop)
	}
	if start, _ := p.Plan(t0, 0, 15); start != 5 {
		t.Fatalf("plan with some in the making %d", start)
	}
	if got := p.Target(t0.Add(24 * time.Hour)); got != 50 {
		t.Fatalf("target a day later %d", got)
	}
}

// TestPoolBounds: whatever happens, the target stays within its bounds, and
// following the plan reaches a state in which it asks for nothing more.
func TestPoolBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := sched.PoolConfig{
			MinIdle: rapid.IntRange(0, 20).Draw(t, "min"), MaxIdle: rapid.IntRange(20, 60).Draw(t, "max"),
			Step: rapid.IntRange(0, 10).Draw(t, "step"), DeclaredPeak: rapid.IntRange(0, 100).Draw(t, "peak"),
		}
		p := sched.NewPool(c, t0)
		now := t0
		for range rapid.IntRange(0, 50).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "dt")))
			p.Arrive(now, rapid.IntRange(0, 1000).Draw(t, "arrivals"))
			p.Made(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "make")))
			if got := p.Target(now); got < c.MinIdle || got > c.MaxIdle {
				t.Fatalf("target %d outside %d…%d", got, c.MinIdle, c.MaxIdle)
			}
		}
		idle := rapid.IntRange(0, 100).Draw(t, "idle")
		for range 200 {
			start, drop := p.Plan(now, idle, 0)
			if start > 0 && drop > 0 || c.Step > 0 && start > c.Step || drop > idle {
				t.Fatalf("plan %d %d", start, drop)
			}
			idle += start - drop
		}
		if start, drop := p.Plan(now, idle, 0); start != 0 || drop != 0 || idle < c.MinIdle || idle > c.MaxIdle {
			t.Fatalf("does not settle: idle %d, plan %d %d", idle, start, drop)
		}
	})
}
