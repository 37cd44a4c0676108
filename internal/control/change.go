package control

import (
	"context"
	"errors"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
)

// change applies events that end nothing, hands the new row to the store and
// tells everybody. What has to be done is the caller's; see session.Effect. It stops at the first error.
func (c *Control) change(l *live, evs ...session.Event) (effects []session.Effect, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ev := range evs {
		next, more, err := session.Apply(l.row, ev, c.cfg.Now())
		if err != nil {
			return effects, err
		}
		if next == l.row {
			continue
		}
		l.row = next
		effects = append(effects, more...)
		c.persist(l)
		c.arm(l)
		l.tell()
	}
	return effects, nil
}

// conclude applies an event that may end the session, and sees to what follows
// in the background. An event that comes too late changes nothing.
func (c *Control) conclude(l *live, ev session.Event) {
	l.mu.Lock()
	next, effects, err := session.Apply(l.row, ev, c.cfg.Now())
	if err != nil || next == l.row {
		l.mu.Unlock()
		return
	}
	l.row = next
	if !next.Phase.Terminal() {
		c.persist(l)
		l.tell()
	}
	l.mu.Unlock()
	l.stopMaking()
	for _, e := range effects {
		switch e {
		case session.DestroyBox:
			c.reclaim(l)
		case session.Finished:
			c.tasks.spawn(func() { c.finish(l) })
		}
	}
}

// persist hands the newest row over without waiting. l.mu is held, which keeps the order.
func (c *Control) persist(l *live) {
	if l.broken {
		return
	}
	from := l.stored
	l.stored = l.row.Version
	c.store.UpdateBehind(l.rec.Project, l.row, from, func(err error) {
		if err != nil {
			// Not under l.mu: whoever holds it may wait for this goroutine.
			c.tasks.spawn(func() { c.writeFailed(l, err) })
		}
	})
}

// writeFailed leaves the stored row behind until repair. The truth is not lost:
// it is in memory, and follows from the node after a crash.
func (c *Control) writeFailed(l *live, err error) {
	select {
	case <-l.inserted:
		if l.insertErr != nil {
			return // there is no row
		}
	case <-c.ctx.Done():
		return
	}
	l.mu.Lock()
	first := !l.broken
	l.broken = true
	l.mu.Unlock()
	if first {
		c.counters.WriteFailures.Add(1)
		c.log.Error("a session's state could not be written; it is tried again", "session", l.rec.ID, "err", err)
	}
}

// repair writes the rows whose writes behind failed.
func (c *Control) repair() {
	for _, l := range c.all() {
		l.mu.Lock()
		broken, row := l.broken, l.row
		l.mu.Unlock()
		if !broken || row.Phase.Terminal() {
			continue
		}
		if c.save(c.ctx, l, row) != nil {
			return
		}
		l.mu.Lock()
		l.stored = row.Version
		l.broken = l.row.Version != row.Version // changed meanwhile: next time
		l.mu.Unlock()
	}
}

// save makes row durable, unless a newer one is.
func (c *Control) save(ctx context.Context, l *live, row session.Row) error {
	l.mu.Lock()
	from := l.stored
	l.mu.Unlock()
	err := c.store.Update(ctx, l.rec.Project, row, from)
	if !errors.Is(err, errdefs.ErrConflict) {
		return err
	}
	rec, err := c.store.Get(ctx, row.ID)
	if err != nil || rec.Version >= row.Version {
		return err
	}
	return c.store.Update(ctx, l.rec.Project, row, rec.Version)
}

// finish makes an end durable, tells it and forgets the session.
func (c *Control) finish(l *live) {
	select { // an update must not overtake the insert
	case <-l.inserted:
	case <-c.ctx.Done():
		return
	}
	row := l.current()
	err := c.retry(func() error {
		err := c.save(c.ctx, l, row)
		if errors.Is(err, errdefs.ErrNotFound) {
			return nil // its insert failed
		}
		return err
	}, func(err error) {
		c.counters.WriteFailures.Add(1)
		c.log.Error("a session's end could not be written; it is tried again", "session", row.ID, "err", err)
	})
	if err != nil {
		return // closing: the next start finds the row and reclaims again
	}
	l.mu.Lock()
	purge := l.purge
	l.mu.Unlock()
	if purge {
		if err := c.store.Delete(c.ctx, row.ID); err != nil && c.ctx.Err() == nil {
			c.log.Warn("a cancelled session could not be forgotten", "session", row.ID, "err", err)
		}
	}
	c.counters.end(row)
	c.forget(l)
	l.mu.Lock()
	l.tell()
	l.mu.Unlock()
}

// forget takes a session out of the books; its place goes to the next in line.
func (c *Control) forget(l *live) {
	l.stopTimers()
	l.dropPayload()
	c.mu.Lock()
	known := c.live[l.rec.ID] == l
	delete(c.live, l.rec.ID)
	c.queue.Done(l.rec.ID)
	c.mu.Unlock()
	if !known {
		return
	}
	c.dropRoot(l.root)
	c.roomFreed()
}

// all gives the live sessions.
func (c *Control) all() []*live {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]*live, 0, len(c.live))
	for _, l := range c.live {
		out = append(out, l)
	}
	return out
}

// retry calls fn until it succeeds or the control plane closes, with growing pauses.
func (c *Control) retry(fn func() error, failed func(error)) error {
	pause := c.cfg.RetryMin
	for {
		err := fn()
		if err == nil {
			return nil
		}
		if c.ctx.Err() != nil {
			return err
		}
		failed(err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-c.ctx.Done():
			t.Stop()
			return err
		}
		pause = min(2*pause, c.cfg.RetryMax)
	}
}
