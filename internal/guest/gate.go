package guest

import (
	"sync/atomic"
	"time"
)

// gate bounds how many goroutines are in slow system calls at once: the Go
// runtime gives each of them a thread, and keeps the thread for ever. It is no lock:
// the agent can hold up a start for as long as it likes, so when nobody has left for a
// while, those that wait go on.
type gate struct {
	slots chan struct{}
	left  atomic.Int64 // how many have left
}

const (
	gateWidth    = 8
	gatePatience = 500 * time.Millisecond
)

func newGate() *gate { return &gate{slots: make(chan struct{}, gateWidth)} }

// enter waits for a slot; leave gives it back.
func (g *gate) enter() (leave func()) {
	select {
	case g.slots <- struct{}{}:
		return g.leave
	default:
	}
	t := time.NewTimer(gatePatience)
	defer t.Stop()
	for left := g.left.Load(); ; left = g.left.Load() {
		select {
		case g.slots <- struct{}{}:
			return g.leave
		case <-t.C:
			if g.left.Load() == left {
				return func() {}
			}
			t.Reset(gatePatience)
		}
	}
}

func (g *gate) leave() {
	g.left.Add(1)
	<-g.slots
}
