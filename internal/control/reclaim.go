package control

import (
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
)

// reclaim has the node destroy what there is of the session, as often as it
// takes, and then ends it. It runs once for a session.
func (c *Control) reclaim(l *live) {
	l.mu.Lock()
	begun := l.ending
	l.ending = true
	l.mu.Unlock()
	if begun {
		return
	}
	c.tasks.spawn(func() {
		if c.destroy(l) == nil {
			c.conclude(l, session.Reclaimed{})
		}
	})
}

// destroy returns when the node says that nothing is left, or the control plane closes.
func (c *Control) destroy(l *live) error {
	if err := l.lock(c.ctx); err != nil {
		return err
	}
	defer l.unlock()
	return c.destroyBox(l.rec.ID, l.current().Reason)
}

func (c *Control) destroyBox(id, reason string) error {
	return c.retry(func() error {
		select {
		case c.reclaiming <- struct{}{}:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
		defer func() { <-c.reclaiming }()
		return c.node.Destroy(c.ctx, id, reason)
	}, func(err error) {
		c.counters.ReclaimRetries.Add(1)
		c.log.Error("the node could not reclaim a box; it is tried again", "session", id, "err", err)
	})
}

// abandon undoes a session whose insert failed: there is no row to end, but there may be a box.
func (c *Control) abandon(l *live, err *errdefs.Error) {
	l.stopMaking()
	if c.destroy(l) != nil {
		return
	}
	c.forget(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range l.items {
		it.settle(CreateResult{Err: err})
	}
	l.items = nil
}
