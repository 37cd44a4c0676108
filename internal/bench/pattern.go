package bench

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Load is how operations of a pass are issued.
type Load struct {
	Pattern     string  // sequential, staggered, burst, open-loop
	N           int     // operations a pass
	Concurrency int     // staggered: workers; burst: 0 means all at once
	Rate        float64 // open-loop: operations a second
}

// Validate fills what is implied and refuses what makes no sense.
func (l *Load) Validate() error {
	if l.N < 1 {
		return fmt.Errorf("--n %d: give at least 1 operation", l.N)
	}
	if l.Concurrency < 0 {
		return fmt.Errorf("--concurrency %d: give at least 1, or 0 for what the pattern implies", l.Concurrency)
	}
	switch l.Pattern {
	case "sequential":
		l.Concurrency = 1
	case "staggered":
		if l.Concurrency < 1 {
			l.Concurrency = 4
		}
	case "burst":
		if l.Concurrency < 1 {
			l.Concurrency = l.N
		}
	case "open-loop":
		if !(l.Rate > 0) { // nor is it no number
			return fmt.Errorf("--pattern open-loop needs --rate, operations a second")
		}
		l.Concurrency = l.N
	default:
		return fmt.Errorf("--pattern %q: use sequential, staggered, burst or open-loop", l.Pattern)
	}
	return nil
}

// run issues n operations. Each is timed from the moment at which it was due: in
// an open loop by the clock, in a burst when all were asked for, else when it was
// its turn. So a stalled system cannot hide behind a late start.
func (l Load) run(ctx context.Context, op func(ctx context.Context, due time.Time, i int) error) *pass {
	p := &pass{}
	cpu0, start := cpuTime(), time.Now()
	var wg sync.WaitGroup
	switch l.Pattern {
	case "open-loop":
		gap := time.Duration(float64(time.Second) / l.Rate)
		for i := range l.N {
			due := start.Add(time.Duration(i) * gap)
			time.Sleep(time.Until(due))
			if ctx.Err() != nil {
				break
			}
			wg.Go(func() {
				err := op(ctx, due, i)
				p.add(time.Since(due), err)
			})
		}
	default:
		next := make(chan int)
		for w := range l.Concurrency {
			wg.Go(func() {
				if l.Pattern == "staggered" {
					time.Sleep(time.Duration(w) * 5 * time.Millisecond)
				}
				for i := range next {
					t := time.Now()
					if l.Pattern == "burst" {
						t = start // the caller asked for all of them at once
					}
					err := op(ctx, t, i)
					p.add(time.Since(t), err)
				}
			})
		}
		for i := range l.N {
			select {
			case next <- i:
			case <-ctx.Done():
			}
		}
		close(next)
	}
	wg.Wait()
	p.wall, p.cpu = time.Since(start), cpuTime()-cpu0
	return p
}
