package node

import (
	"time"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// watchInterval is how late the end of a box that nobody uses is noticed at most. (An op on
// it fails at once.) Looking at 5,000 boxes takes well under a millisecond.
const watchInterval = 200 * time.Millisecond

// runWatch looks at the ends and events of all boxes, and at connections that nobody uses.
func (n *Node) runWatch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var boxes []*box
	for {
		select {
		case <-tick.C:
			boxes = n.all(boxes[:0])
			now := n.cfg.boot()
			for _, b := range boxes {
				n.look(b, now)
			}
			clear(boxes)
		case <-n.ctx.Done():
			return
		}
	}
}

func (n *Node) look(b *box, now time.Duration) {
	b.mu.Lock()
	r, s, made := b.rbox, b.session, b.made
	b.mu.Unlock()
	if r == nil || !made || b.destroying.Load() {
		return
	}
	if s != nil {
		n.drain(r, s, b)
		n.rest(s, now)
	}
	if !ended(r) {
		return
	}
	if s != nil {
		n.lose(s, b, BoxLost)
		return
	}
	n.pools.remove(b)
	n.log.Warn("an idle pooled box has ended", "box", b.id)
	b.destroying.Store(true)
	n.wg.Go(func() { n.discard(b) })
}

func (n *Node) drain(r runtime.Box, s *session, b *box) {
	for {
		select {
		case e, ok := <-r.Events():
			if !ok {
				return
			}
			switch e.Kind {
			case runtime.MemoryWarning:
				n.emit(Event{Kind: MemWarning, Session: s.id, Box: b.id, Percent: e.Percent})
			case runtime.OOMKill:
				n.emit(Event{Kind: OOMKilled, Session: s.id, Box: b.id})
			}
		default:
			return
		}
	}
}

// discard reclaims a box that no session has; patrol tries again what fails.
func (n *Node) discard(b *box) {
	if err := n.reclaim(n.ctx, b); err != nil && n.ctx.Err() == nil {
		n.log.Error("a pooled box could not be removed yet", "box", b.id, "err", err)
	}
}
