package sched

import (
	"math"
	"time"
)

// PoolConfig bounds a pool of boxes that are made ahead of demand.
type PoolConfig struct {
	MinIdle, MaxIdle int
	// Step is the most boxes that are started at once; 0 means no bound.
	Step int
	// DeclaredPeak is the expected peak of concurrent creates: the target starts
	// from 1.5 × it, and what is observed takes over as that fades.
	DeclaredPeak int
	// HalfLife of the arrival rate's and make time's averages; default 10 s.
	HalfLife time.Duration
}

const (
	defaultHalfLife = 10 * time.Second
	peakHalfLife    = 10 * time.Minute
	peakFactor      = 1.5
	// safety covers the spread of arrivals round their mean: Little's law gives the mean
	// number of creates that arrive during one make time.
	safety = 2.0
	// defaultMake is assumed until a box has been made.
	defaultMake = 5 * time.Millisecond
)

// Pool computes how many boxes to keep ready for one pool key: the arrival rate
// (an exponentially weighted average) times the time that it takes to have a new box
// ready (Little's law), within MinIdle and MaxIdle. Make one with NewPool.
type Pool struct {
	c        PoolConfig
	rate     float64 // arrivals a second at last
	last     time.Time
	start    time.Time
	makeTime time.Duration
	pending  int // arrivals since last, not folded into rate yet
}

// NewPool makes the pool's model; now is the start of its clock.
func NewPool(c PoolConfig, now time.Time) *Pool {
	if c.HalfLife <= 0 {
		c.HalfLife = defaultHalfLife
	}
	c.MinIdle = max(c.MinIdle, 0)
	c.MaxIdle = max(c.MaxIdle, c.MinIdle)
	return &Pool{c: c, last: now, start: now, makeTime: defaultMake}
}

// Arrive tells of n creates at now.
func (p *Pool) Arrive(now time.Time, n int) {
	p.pending += n
	p.fold(now)
}

// Made tells how long it took from the wish for a box to its readiness, queueing for
// creation slots included.
func (p *Pool) Made(d time.Duration) {
	const weight = 0.2
	p.makeTime = time.Duration((1-weight)*float64(p.makeTime) + weight*float64(d))
}

// Rate is the arrival rate at now, per second.
func (p *Pool) Rate(now time.Time) float64 {
	p.fold(now)
	return p.rate
}

// MakeTime is the average time to have a box ready.
func (p *Pool) MakeTime() time.Duration { return p.makeTime }

// Target is how many idle boxes to hold at now.
func (p *Pool) Target(now time.Time) int {
	want := p.Rate(now) * p.makeTime.Seconds() * safety
	// The declared peak fades, so that a wrong declaration costs memory for a
	// while and not for ever.
	want = max(want, peakFactor*float64(p.c.DeclaredPeak)*decay(now.Sub(p.start), peakHalfLife))
	return min(max(int(math.Ceil(want-1e-9)), p.c.MinIdle), p.c.MaxIdle)
}

// Plan says how many boxes to start and how many idle ones to destroy at now,
// given how many are idle and in the making.
func (p *Pool) Plan(now time.Time, idle, making int) (start, drop int) {
	target := p.Target(now)
	if missing := target - idle - making; missing > 0 {
		if p.c.Step > 0 {
			missing = min(missing, max(p.c.Step-making, 0))
		}
		return missing, 0
	}
	// Shrink only well below: a box dropped and made again at once is waste.
	// The upper bound is hard.
	keep := max(target+target/2, p.c.MinIdle)
	return 0, max(idle-min(keep, p.c.MaxIdle), 0)
}

// fold brings the average to now. Arrivals within one millisecond are folded
// together; a burst of n weighs as n arrivals spread over the time constant.
func (p *Pool) fold(now time.Time) {
	dt := now.Sub(p.last)
	if dt < time.Millisecond {
		return
	}
	tau := p.c.HalfLife.Seconds() / math.Ln2
	p.rate = p.rate*decay(dt, p.c.HalfLife) + float64(p.pending)/tau
	p.pending = 0
	p.last = now
}

func decay(dt, halfLife time.Duration) float64 {
	return math.Exp2(-max(dt.Seconds(), 0) / halfLife.Seconds())
}
