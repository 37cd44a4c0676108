package guest

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateBoundsAndNeverLocksOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		var inside, most atomic.Int64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				defer g.enter()()
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(gatePatience / 4) // a line longer than the patience is no reason to go on
				inside.Add(-1)
			})
		}
		wg.Wait()
		if most.Load() != gateWidth || len(g.slots) != 0 {
			t.Errorf("%d were inside, %d are", most.Load(), len(g.slots))
		}
		for range gateWidth {
			g.enter() // held up for ever
		}
		start := time.Now()
		g.enter()()
		if d := time.Since(start); d != gatePatience || len(g.slots) != gateWidth {
			t.Errorf("let in after %v", d)
		}
	})
}
