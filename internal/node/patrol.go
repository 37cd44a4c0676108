package node

import (
	"time"
)

// runPatrol looks, again and again, for what escaped everything else.
func (n *Node) runPatrol() {
	tick := time.NewTicker(n.cfg.PatrolInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			n.patrol()
		case <-n.ctx.Done():
			return
		}
	}
}

func (n *Node) patrol() {
	for _, b := range n.all(nil) {
		if b.destroying.Load() {
			n.discard(b)
		}
	}
	for name, rt := range n.cfg.Runtimes {
		orphans, err := rt.Sweep(n.ctx, n.known)
		if n.ctx.Err() != nil {
			return
		}
		if err != nil {
			n.log.Error("patrol", "runtime", name, "err", err)
		}
		n.count(orphans)
	}
	began := time.Now()
	if err := n.journal.compact(); err != nil {
		n.log.Error("the journal could not be compacted", "err", err, "took", time.Since(began))
	}
}

// known tells whether a box is in the books, in the making or lent included.
func (n *Node) known(id string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.boxes[id] != nil || n.lent[id]
}
