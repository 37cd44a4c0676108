package control

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
)

// MaxLifetime is the farthest that a deadline can be.
const MaxLifetime = 366 * 24 * time.Hour

// Deadline says where a session's deadline is to be.
type Deadline struct {
	Lifetime time.Duration // from now; 0: no deadline any more
	Then     string        // "stop", "suspend"; empty: as it is
	Extend   bool          // only if that is later than it is
}

// Deadlines are the ends of sessions that their clients move. *Control implements it.
type Deadlines interface {
	// SetDeadline moves the deadline of a session that runs or is suspended. When it returns nil, the
	// earlier one has not acted and never will.
	SetDeadline(ctx context.Context, project, id string, d Deadline) (*Session, error)
}

var _ Deadlines = (*Control)(nil)

// SetDeadline implements Deadlines.
func (c *Control) SetDeadline(ctx context.Context, project, id string, d Deadline) (*Session, error) {
	if err := checkDeadline(d.Lifetime, d.Then); err != nil {
		return nil, err
	}
	l, s, err := c.lookup(ctx, project, id)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, ended(s)
	}
	ev := session.SetDeadline{At: c.cfg.Now().Add(d.Lifetime), Lifetime: d.Lifetime, Then: session.Action(d.Then), Extend: d.Extend}
	if _, err := c.change(l, ev); err != nil {
		if row := l.current(); row.Ending() || row.Phase.Terminal() {
			return nil, ended(view(&l.rec, row))
		}
		return nil, err
	}
	return c.show(l), c.store.Flush(ctx) // or the earlier deadline would act after a crash
}

// checkDeadline wants an action only where there is a lifetime.
func checkDeadline(lifetime time.Duration, then string) error {
	switch {
	case lifetime < 0 || lifetime > MaxLifetime:
		return errdefs.Userf(errdefs.InvalidArgument, "field lifetime", "use 1 second to 366 days, or 0 for no deadline", "%s cannot be", lifetime)
	case lifetime == 0 && then != "":
		return errdefs.Userf(errdefs.InvalidArgument, "field at_deadline", "give a lifetime too", "there is no deadline")
	case then != "" && then != string(session.ActStop) && then != string(session.ActSuspend):
		return errdefs.Userf(errdefs.InvalidArgument, "field at_deadline", "use stop or suspend", "%q is neither", then)
	}
	return nil
}

// arm sets the timer to the session's deadline. l.mu is held.
func (c *Control) arm(l *live) {
	r := &l.row
	if r.Deadline.IsZero() || r.Phase != session.Running || r.Desired != session.WantRunning {
		if l.up != nil {
			l.up.Stop()
		}
		return
	}
	wait := r.Deadline.Sub(c.cfg.Now())
	if l.up == nil {
		l.up = time.AfterFunc(wait, func() { c.tasks.spawn(func() { c.timeUp(l) }) })
		return
	}
	l.up.Reset(wait)
}

// timeUp does what is to be done at the deadline, if it has come.
func (c *Control) timeUp(l *live) {
	row := l.current()
	if row.Deadline.After(c.cfg.Now()) { // it was moved, or the clock was
		l.mu.Lock()
		c.arm(l)
		l.mu.Unlock()
		return
	}
	if row.AtDeadline == session.ActSuspend {
		err := c.suspendBy(c.ctx, l, session.Expire{Then: session.ActSuspend})
		if err == nil || c.ctx.Err() != nil {
			return
		}
		// What cannot be frozen must not run for ever.
		c.log.Error("a session could not be suspended at its deadline, and is stopped", "session", l.rec.ID, "err", err)
		c.conclude(l, session.Stop{Reason: "it could not be suspended at its deadline"})
		return
	}
	c.conclude(l, session.Expire{Then: row.AtDeadline})
}
