package control

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/session"
)

// freezing is how many boxes are frozen or thawed at the same time for one call.
const freezing = 16

// Suspend implements API.
func (c *Control) Suspend(ctx context.Context, project string, sel Selector) ([]StopResult, error) {
	return c.eachLive(ctx, project, sel, c.suspend)
}

// Resume implements API.
func (c *Control) Resume(ctx context.Context, project string, sel Selector) ([]StopResult, error) {
	return c.eachLive(ctx, project, sel, c.resume)
}

func (c *Control) eachLive(ctx context.Context, project string, sel Selector, fn func(context.Context, *live) error) ([]StopResult, error) {
	targets, err := c.choose(ctx, project, sel)
	if err != nil {
		return nil, err
	}
	return gather(targets, func(t *target) StopResult {
		switch {
		case t.err != nil:
			return StopResult{ID: t.id, Err: t.err}
		case t.live == nil:
			return StopResult{ID: t.id, Session: t.ended, Err: errdefs.From(ended(t.ended))}
		}
		err := fn(ctx, t.live)
		return StopResult{ID: t.id, Session: c.show(t.live), Err: errdefs.From(err)}
	}, freezing), nil
}

func (c *Control) suspend(ctx context.Context, l *live) error {
	return c.suspendFor(ctx, l, "suspended")
}

func (c *Control) suspendFor(ctx context.Context, l *live, reason string) error {
	return c.suspendBy(ctx, l, session.Suspend{Reason: reason})
}

// suspendBy freezes the session if that is what ev asks for.
func (c *Control) suspendBy(ctx context.Context, l *live, ev session.Event) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	effects, err := c.change(l, ev)
	if err != nil || len(effects) == 0 {
		return err
	}
	// What is begun is brought to its end, so that row and box agree.
	if err := c.node.Suspend(context.WithoutCancel(ctx), l.rec.ID); err != nil {
		_, _ = c.change(l, session.Resume{}, session.Thawed{}) // if it ends meanwhile, that stands
		return err
	}
	_, err = c.change(l, session.Frozen{})
	return err
}

func (c *Control) resume(ctx context.Context, l *live) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	effects, err := c.change(l, session.Resume{})
	if err != nil || len(effects) == 0 {
		return err
	}
	if err := c.node.Resume(context.WithoutCancel(ctx), l.rec.ID); err != nil {
		_, _ = c.change(l, session.Suspend{Reason: "it could not be resumed: " + err.Error()}, session.Frozen{})
		return err
	}
	_, err = c.change(l, session.Thawed{})
	return err
}

// Guest implements API. A session in audit gives a guest that answers what
// reads; the node refuses the rest.
func (c *Control) Guest(ctx context.Context, project, id string) (guestclient.API, func(), error) {
	l, s, err := c.lookup(ctx, project, id)
	if err != nil {
		return nil, nil, err
	}
	if l == nil {
		return nil, nil, ended(s)
	}
	return c.guest(ctx, l, true)
}

func (c *Control) guest(ctx context.Context, l *live, resume bool) (guestclient.API, func(), error) {
	id := l.rec.ID
	for range 3 { // a suspend may come between resume and acquire, but hardly for ever
		row := l.current()
		switch {
		case row.Phase.Terminal() || row.Ending():
			return nil, nil, ended(view(&l.rec, row))
		case !row.Phase.AtLeast(session.Running):
			e := errdefs.Userf(errdefs.Conflict, "session "+id, "wait until it is RUNNING", "it has no box yet: it is %s", row.Phase)
			e.Retryable = true
			return nil, nil, e
		case row.Desired == session.WantSuspended || row.Phase == session.Suspended && row.Desired != session.WantAudit:
			if !resume {
				return nil, nil, errdefs.Userf(errdefs.Conflict, "session "+id, "resume it first", "it is suspended")
			}
			if err := c.resume(ctx, l); err != nil {
				return nil, nil, err
			}
			continue
		}
		g, release, err := c.node.Acquire(ctx, id)
		if err == nil {
			return g, release, nil
		}
		if now := l.current(); now.Version == row.Version || errdefs.From(err).Reason != errdefs.Conflict {
			return nil, nil, err
		}
	}
	return nil, nil, errdefs.Userf(errdefs.Conflict, "session "+id, "try again", "it is being suspended and resumed all the time")
}

// ended is the error of whoever wants something of a session that has ended or is about to.
func ended(s *Session) error {
	object := "session " + s.ID
	if s.Error != nil {
		e := *s.Error
		e.Object, e.Retryable = object, false
		return &e
	}
	return errdefs.Userf(errdefs.BoxGone, object, "create a new session", "it has ended: %s", s.Reason)
}

// Heartbeat implements API.
func (c *Control) Heartbeat(ctx context.Context, project, id string) error {
	l, s, err := c.lookup(ctx, project, id)
	if err != nil {
		return err
	}
	if l == nil {
		return ended(s)
	}
	c.beat(l)
	return nil
}

func (c *Control) beat(l *live) { l.heartbeat.Store(max(int64(c.cfg.Now().Sub(c.began)), 1)) }

// beaten tells whether the owner gave a sign of life within d, or holds a lease that lives.
func (c *Control) beaten(l *live, d time.Duration) bool {
	if c.ownerLives(l) {
		return true
	}
	last := l.heartbeat.Load()
	return last != 0 && c.cfg.Now().Sub(c.began)-time.Duration(last) < d
}
