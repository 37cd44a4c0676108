package control

import (
	"context"
	"fmt"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store"
)

// reconcile makes rows and boxes agree after a restart. The node is the truth of
// what runs, SQL of what was asked for.
func (c *Control) reconcile(ctx context.Context) error {
	recs, err := c.store.Live(ctx)
	if err != nil {
		return err
	}
	inventory, err := c.node.Inventory(ctx)
	if err != nil {
		return err
	}
	boxes := make(map[string]node.Inventory, len(inventory))
	for _, b := range inventory {
		boxes[b.Session] = b
	}
	lives := make([]*live, len(recs))
	for i, rec := range recs {
		lives[i] = c.adopt(ctx, rec)
	}
	for _, l := range lives {
		box, has := boxes[l.rec.ID]
		delete(boxes, l.rec.ID)
		c.settle(ctx, l, box, has)
	}
	for id := range boxes {
		c.log.Warn("a box belongs to no session and is destroyed", "session", id)
		c.counters.Orphans.Add(1)
		c.tasks.spawn(func() { _ = c.destroyBox(id, "it belongs to no session") })
	}
	if len(lives) > 0 {
		c.log.Info("sessions of before the restart", "live", len(lives), "boxes", len(inventory))
	}
	c.poke()
	return nil
}

// adopt makes a stored session live again, and keeps its template from being removed.
func (c *Control) adopt(ctx context.Context, rec *store.Session) *live {
	l := newLive(c.ctx, *rec)
	close(l.inserted)
	c.beat(l) // its owner could not reach a server: that was no silence
	root, err := c.takeRoot(ctx, rec.Template)
	if err != nil {
		c.log.Warn("the template of a live session is gone", "session", rec.ID, "template", rec.Template, "err", err)
	}
	l.root = root
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[rec.ID] = l
	return l
}

func (c *Control) settle(ctx context.Context, l *live, box node.Inventory, has bool) {
	row := l.current()
	switch {
	case row.Ending():
		c.readmit(l, true)
		c.reclaim(l)
	case has && box.State == string(node.Destroying):
		c.readmit(l, true)
		c.tasks.spawn(func() {
			if c.destroyBox(row.ID, "its removal was interrupted") == nil {
				c.settle(c.ctx, l, node.Inventory{}, false)
			}
		})
	case has && box.State == string(node.Lost):
		c.readmit(l, true)
		c.conclude(l, session.Fail{Err: verdict(row.ID, box.Cause)})
	case !has && !row.Phase.AtLeast(session.Running):
		c.again(l, row)
	case !has:
		c.readmit(l, true)
		c.conclude(l, session.Fail{Err: errdefs.Infraf(errdefs.ScopeNode, errdefs.BoxGone, "session "+row.ID,
			"the node does not have its box any more: the machine was restarted, or its state was removed")})
	default:
		c.readmit(l, true)
		c.agree(ctx, l, box)
	}
}

func (c *Control) readmit(l *live, active bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.Readmit(l.rec.ID, active)
}

// again queues a session that has no box, if it can still be made and somebody wants it.
func (c *Control) again(l *live, row session.Row) {
	switch {
	case !l.rec.Detached:
		l.mu.Lock()
		l.purge = true // its caller's connection died with the server, before the answer
		l.mu.Unlock()
		c.conclude(l, session.Stop{Reason: "its caller was lost when the server restarted"})
	case l.rec.Payload:
		c.conclude(l, session.Fail{Err: errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "session "+row.ID,
			"the server restarted before it had a box, and its secrets or code are kept in memory only; create it again with a new idempotency key")})
	case l.root == nil:
		c.conclude(l, session.Fail{Err: errdefs.Userf(errdefs.NotFound, "template "+l.rec.Template, "import it again, and create the session again", "it was removed while the session waited")})
	default:
		p, err := c.surround(l.rec.Project, l.root, &CreateRequest{Spec: l.rec.Spec, Env: l.rec.Env, CodeDir: "/workspace"})
		if err != nil { // the operator bounds more than when it was queued
			c.conclude(l, session.Fail{Err: errdefs.From(err)})
			return
		}
		l.mu.Lock()
		l.payload = &p
		l.mu.Unlock()
		c.mu.Lock()
		c.queue.Readmit(l.rec.ID, false)
		c.queue.Refused(l.rec.ID) // to the line, if it counted as active
		c.mu.Unlock()
		// It may be SCHEDULED, and the node have nothing of it.
		if _, err := c.change(l, session.Refuse{Reason: "the server restarted"}); err != nil {
			c.log.Error("a session could not be queued again", "session", row.ID, "err", err)
		}
		c.poke()
	}
}

// agree brings the row of a session with a box to what the box is.
func (c *Control) agree(ctx context.Context, l *live, box node.Inventory) {
	row := l.current()
	var evs []session.Event
	if row.Phase == session.Pending { // its placement was not written yet
		evs = append(evs, session.Place{Node: c.cfg.NodeName})
	}
	if !row.Phase.AtLeast(session.Running) {
		start := session.Start{Box: box.Box}
		if ins, err := c.node.Inspect(ctx, row.ID); err == nil {
			start.Pooled, start.ColdReason = ins.Pooled, ins.ColdReason
		}
		evs = append(evs, start)
	}
	switch box.State {
	case string(node.Live):
		// Whichever of a freeze or thaw was cut short, the box takes ops: so it runs.
		evs = append(evs, session.Resume{}, session.Thawed{})
	case string(node.Suspended):
		evs = append(evs, session.Suspend{Reason: "suspended"}, session.Frozen{})
	case string(node.Audit):
		evs = append(evs, session.Audit{Err: c.overtime(row.ID)})
	default:
		c.conclude(l, session.Fail{Err: errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "session "+row.ID, "the node tells of a state %q of its box", box.State)})
		return
	}
	if row.Box != "" && row.Box != box.Box {
		c.conclude(l, session.Fail{Err: errdefs.Infraf(errdefs.ScopeNode, errdefs.BoxGone, "session "+row.ID, "the node has box %s instead of %s", box.Box, row.Box)})
		return
	}
	if _, err := c.change(l, evs...); err != nil {
		c.log.Error("a session and its box do not agree", "session", row.ID, "box", fmt.Sprintf("%+v", box), "err", err)
		return
	}
	l.mu.Lock()
	c.arm(l)
	l.mu.Unlock()
	if box.State == string(node.Audit) {
		c.armAudit(l, c.cfg.AuditGrace)
	}
}
