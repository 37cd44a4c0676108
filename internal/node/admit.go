package node

import (
	"sync"

	"github.com/dsec-platform/dsec/internal/sched"
)

// ledger is sched's, for concurrent use.
type ledger struct {
	mu sync.Mutex
	l  *sched.Ledger
}

func (l *ledger) replace(old, d sched.Demand) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.l.Replace(old, d)
}

func (l *ledger) release(d sched.Demand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.l.Release(d)
}

func (l *ledger) adopt(d sched.Demand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.l.Adopt(d)
}

func (l *ledger) figures() (total, promised sched.Demand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.l.Total(), l.l.Promised()
}

// admit promises d instead of old, for a session. Idle pooled boxes are worth less
// than a session that waits: they are reclaimed as long as that helps.
func (n *Node) admit(old, d sched.Demand) error {
	for {
		err := n.ledger.replace(old, d)
		if err == nil || sched.Never(err) {
			return err
		}
		b := n.victim(old, d)
		if b == nil || n.reclaim(n.ctx, b) != nil {
			n.refused.Store(true)
			return err
		}
	}
}

// victim gives an idle pooled box to reclaim for d, if memory is what is missing: that
// is all that an idle box holds.
func (n *Node) victim(old, d sched.Demand) *box {
	total, promised := n.ledger.figures()
	if promised.Memory-old.Memory+d.Memory <= total.Memory {
		return nil
	}
	return n.pools.evict()
}

// freed tells the control plane, once, that a placement which was refused may be tried again.
func (n *Node) freed() {
	if n.refused.CompareAndSwap(true, false) {
		n.emit(Event{Kind: CapacityFree})
	}
	n.pools.poke()
}
