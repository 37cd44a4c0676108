package node

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// reclaimTimeout bounds one attempt; a box that resists is tried again by
// Destroy and by every patrol, and keeps its promise meanwhile.
const reclaimTimeout = 2 * time.Minute

// Destroy implements API.
func (n *Node) Destroy(ctx context.Context, id string, reason string) error {
	if err := n.enter(); err != nil {
		return err
	}
	defer n.wg.Done()
	s := n.session(id)
	if s == nil {
		return nil
	}
	s.stopMaking()
	select {
	case <-s.ready:
	case <-ctx.Done():
		return errdefs.From(ctx.Err())
	}
	_, b := s.current()
	if b == nil {
		n.forget(s) // its create failed before there was a box
		return nil
	}
	now := n.cfg.boot()
	s.become(Destroying, now, Live, Suspended, Audit, Lost)
	n.clock.remove(s)
	began := time.Now()
	if err := n.reclaim(ctx, b); err != nil {
		return err
	}
	// A lost box was reclaimed before; its end was remembered for this call.
	n.note(&record{Kind: recGone, Box: b.id})
	n.forget(s)
	n.metrics.destroyed(time.Since(began))
	n.log.Debug("box destroyed", "box", b.id, "session", id, "reason", reason)
	return nil
}

// reclaim removes the box and returns with proof, or with an error and the box's
// promise still standing. Idempotent; it goes on when ctx ends.
func (n *Node) reclaim(ctx context.Context, b *box) error {
	b.destroying.Store(true)
	return b.reclaiming.do(ctx, &n.wg, func() error { return n.remove(b) })
}

func (n *Node) remove(b *box) error {
	b.mu.Lock()
	r, s, gone, begun := b.rbox, b.session, b.gone, b.begun
	b.mu.Unlock()
	if gone {
		return nil
	}
	if s != nil {
		n.dropGuest(s)
	}
	if !begun {
		n.buried(b)
		return nil
	}
	n.reclaims <- struct{}{}
	defer func() { <-n.reclaims }()
	n.note(&record{Kind: recDestroying, Box: b.id, Cause: s.lostBy()})
	b.closeNetwork()
	if s != nil {
		n.spares.vacated()
		n.pools.vacated()
	}
	ctx, cancel := context.WithTimeout(context.Background(), reclaimTimeout)
	defer cancel()
	if r != nil {
		if err := r.Destroy(ctx); err != nil {
			return errdefs.From(err)
		}
	} else if err := n.sweeps.remove(ctx, b); err != nil {
		return err
	}
	n.buried(b)
	return nil
}

// buried closes the books on a box of which nothing is left.
func (n *Node) buried(b *box) {
	last := &record{Kind: recGone, Box: b.id}
	b.mu.Lock()
	s, begun := b.session, b.begun
	b.mu.Unlock()
	if cause := s.lostBy(); cause != "" {
		last.Kind, last.Cause = recLost, cause
	}
	if begun {
		n.note(last)
	}
	b.mu.Lock()
	b.gone, b.rbox = true, nil
	d := b.demand
	b.demand.Memory, b.demand.CPU = 0, 0
	b.mu.Unlock()
	n.mu.Lock()
	delete(n.boxes, b.id)
	n.mu.Unlock()
	n.ledger.release(d)
	n.freed()
}

// note journals what only shortens the next start. A full disk must not keep
// boxes from being removed: without the record the next node finds the box gone by itself.
func (n *Node) note(r *record) {
	if err := n.journal.append(r); err != nil {
		n.log.Warn("journal", "kind", r.Kind, "box", r.Box, "err", err)
	}
}
