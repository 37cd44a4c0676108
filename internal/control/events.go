package control

import (
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/session"
)

// follow hears what the node has to say.
func (c *Control) follow() {
	events := c.node.Events()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			c.hear(e)
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Control) hear(e node.Event) {
	if e.Kind == node.CapacityFree {
		c.roomFreed()
		return
	}
	l := c.find(e.Session)
	if l == nil {
		return // it ended meanwhile
	}
	switch e.Kind {
	case node.BoxLost, node.BoxTampered, node.BoxFailed:
		c.counters.BoxesLost.Add(1)
		c.log.Warn("a box ended unasked", "session", e.Session, "box", e.Box, "cause", e.Kind)
		c.conclude(l, session.Fail{Err: verdict(e.Session, e.Kind)})
	case node.IdleExpired:
		c.tasks.spawn(func() { c.idle(l) })
	case node.RuntimeOver:
		c.tasks.spawn(func() { c.runtimeOver(l) })
	case node.SuspendedOver:
		c.tasks.spawn(func() { c.suspendedOver(l) })
	case node.OOMKilled:
		c.counters.OOMKills.Add(1)
	case node.MemWarning:
		c.counters.MemWarnings.Add(1)
	}
}

// verdict says whose fault the end of a box is. Only the node's own failure is infrastructure: a
// PID 1 that dies on a healthy node was brought to it from inside.
func verdict(id string, kind node.EventKind) *errdefs.Error {
	object := "session " + id
	switch kind {
	case node.BoxFailed:
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.BoxGone, object, "the node could not keep its box")
	case node.BoxTampered:
		return errdefs.Policyf(errdefs.BoxTampered, object, "look at what its processes did; create a new session", "its guest died, stalled or broke the protocol on a healthy node")
	}
	return errdefs.Policyf(errdefs.BoxTampered, object, "look at what its processes did; create a new session", "the first process of its box ended on a healthy node")
}

// idle ends a session that nobody uses, unless its owner gave a sign of life lately.
func (c *Control) idle(l *live) {
	s := l.rec.Spec.Session
	if c.beaten(l, 3*time.Duration(s.HeartbeatInterval)*time.Second) {
		return // the node tells again
	}
	row := l.current()
	if row.Phase != session.Running || row.Desired != session.WantRunning {
		return
	}
	// Somebody may have used it since the node told. Its operations are not asked about again:
	// those that count were, and those in the background do not.
	if ins, err := c.node.Inspect(c.ctx, l.rec.ID); err != nil || ins.IdleFor < s.MaxIdle() {
		return
	}
	c.counters.IdleEnds.Add(1)
	c.conclude(l, session.Stop{Reason: "idle for " + s.MaxIdle().String()})
}

// suspendedOver ends a session that was suspended for longer than it may be. Heartbeats do
// not keep it: its clock would be no bound, and its owner can resume it.
func (c *Control) suspendedOver(l *live) {
	if l.lock(c.ctx) != nil { // a resume that is under way goes first
		return
	}
	defer l.unlock()
	if row := l.current(); row.Phase != session.Suspended || row.Desired != session.WantSuspended {
		return
	}
	c.counters.SuspendedEnds.Add(1)
	c.conclude(l, session.Stop{Reason: "suspended for " + l.rec.Spec.Session.MaxSuspended().String()})
}

// runtimeOver begins the audit; its grace ends the session.
func (c *Control) runtimeOver(l *live) {
	// A short run time may be over before the insert is durable and the session RUNNING.
	select {
	case <-l.inserted:
	case <-c.ctx.Done():
		return
	}
	if l.insertErr != nil {
		return
	}
	if _, err := c.waitFor(c.ctx, l, session.Running); err != nil {
		return
	}
	if _, err := c.change(l, session.Audit{Err: c.overtime(l.rec.ID)}); err != nil {
		return // it ends
	}
	c.counters.Audits.Add(1)
	c.armAudit(l, c.cfg.AuditGrace)
}

func (c *Control) overtime(id string) *errdefs.Error {
	return errdefs.Limitf(errdefs.TimedOut, "session "+id, "raise max_runtime_seconds",
		"its run time is over; what it left can be read for %s", c.cfg.AuditGrace)
}

func (c *Control) armAudit(l *live, grace time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.audit != nil || l.row.Ending() || l.row.Phase.Terminal() {
		return
	}
	l.audit = time.AfterFunc(grace, func() {
		l.mu.Lock()
		verdict := l.row.Error
		l.mu.Unlock()
		c.conclude(l, session.Fail{Err: verdict})
	})
}
