package node

import (
	"sync"

	"github.com/dsec-platform/dsec/internal/sched"
)

// ledger is sched's, for concurrent use.
type ledger struct {
	mu    sync.Mutex
	l     *sched.Ledger
	freed chan struct{} // closed when something is given back; nil: nobody waits
}

// room gives a channel that is closed when something is given back from now on.
func (l *ledger) room() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	return l.freed
}

// tell wakes who waits for room. l.mu is held.
func (l *ledger) tell() {
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

func (l *ledger) replace(old, d sched.Demand) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.l.Replace(old, d)
	if err == nil && (d.Memory < old.Memory || d.CPU < old.CPU) {
		l.tell()
	}
	return err
}

func (l *ledger) release(d sched.Demand) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.l.Release(d)
	l.tell()
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

// demand is what a box is promised: its memory limit, once, and the cpu that it
// requests (its cpu limit is a ceiling, not a promise). An idle pooled one runs nothing.
func (n *Node) demand(m *meta) sched.Demand {
	d := sched.Demand{Memory: m.Limits.Memory}
	if m.Session != "" {
		d.CPU = m.Limits.CPURequest
	}
	return d
}

// admit promises d instead of old, for a session. Idle pooled boxes are worth less
// than a session that waits: they are reclaimed as long as that helps.
func (n *Node) admit(old, d sched.Demand) error {
	err := n.ledger.replace(old, d)
	if err == nil || sched.Never(err) {
		return err
	}
	// No refill may take the place that is being made here.
	n.waiting.Add(1)
	defer n.waiting.Add(-1)
	for n.short(old, d) {
		if b := n.pools.evict(); b != nil {
			if n.reclaim(n.ctx, b) != nil {
				break
			}
		} else if !n.pools.settle() {
			break
		}
	}
	if err = n.ledger.replace(old, d); err != nil {
		n.refused.Store(true)
	}
	return err
}

// short tells whether memory is what d lacks: it is all that an idle box holds.
func (n *Node) short(old, d sched.Demand) bool {
	total, promised := n.ledger.figures()
	return promised.Memory-old.Memory+d.Memory > total.Memory
}

// freed tells the control plane, once, that a placement which was refused may be tried again.
func (n *Node) freed() {
	if n.refused.CompareAndSwap(true, false) {
		n.emit(Event{Kind: CapacityFree})
	}
	n.pools.poke()
}
