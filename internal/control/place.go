package control

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/sched"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/template"
)

// place has the node make the box of a SCHEDULED session. It gives back the
// slot of c.placing that the caller took.
func (c *Control) place(l *live) {
	defer func() { <-c.placing }()
	if l.lock(c.ctx) != nil {
		return
	}
	defer l.unlock()
	c.mu.Lock()
	freed := c.freed
	c.mu.Unlock()
	l.mu.Lock()
	row, p := l.row, l.payload
	l.mu.Unlock()
	if row.Phase != session.Scheduled || row.Ending() || p == nil {
		return
	}
	bound, err := c.node.Create(l.making, c.command(l, row, p))
	select {
	case <-l.inserted:
	case <-c.ctx.Done():
		return
	}
	switch {
	case l.insertErr != nil: // abandon removes what was made
	case err == nil:
		// A conflict means that its end was decided meanwhile, and the reclaim waits for l.busy.
		if _, err := c.change(l, session.Start{Box: bound.Box, Pooled: bound.Pooled, ColdReason: bound.ColdReason}); err == nil {
			c.started(l, bound)
		}
	case l.making.Err() != nil: // it ends, or the server does
	case errdefs.From(err).Reason == errdefs.NodeFull && !sched.Never(err):
		c.refused(l, freed, errdefs.From(err))
	default:
		c.log.Warn("a box could not be made", "session", l.rec.ID, "err", err)
		c.conclude(l, session.Fail{Err: errdefs.From(err)})
	}
}

func (c *Control) started(l *live, b *node.Bound) {
	l.dropPayload()
	if b.Pooled {
		c.counters.Pooled.Add(1)
	} else {
		c.counters.Cold.Add(1)
	}
}

// refused puts the session back in line. Freed tells how often room had been
// reported before the node was asked: if it was reported since, the refusal is stale.
func (c *Control) refused(l *live, freed uint64, why *errdefs.Error) {
	if _, err := c.change(l, session.Refuse{Reason: why.Object + ": " + why.Message}); err != nil {
		return // it ends
	}
	c.counters.NodeFull.Add(1)
	c.mu.Lock()
	if c.live[l.rec.ID] == l {
		c.queue.Refused(l.rec.ID)
	}
	c.blocked, c.pressed = c.freed == freed, true
	c.mu.Unlock()
	c.poke()
}

// roomFreed lets the line move.
func (c *Control) roomFreed() {
	c.mu.Lock()
	c.blocked = false
	c.freed++
	waits := c.queue.Waiting() > 0
	c.mu.Unlock()
	if waits {
		c.poke()
	}
}

func (c *Control) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// dispatch places those that wait, in order, as long as there is room. While the
// node has little of it, one at a time: of two that ask together the later one
// might get what there is.
func (c *Control) dispatch() {
	for {
		select {
		case <-c.wake:
		case <-c.ctx.Done():
			return
		}
		for {
			select {
			case c.placing <- struct{}{}:
			case <-c.ctx.Done():
				return
			}
			l, alone := c.head()
			if l == nil {
				<-c.placing
				break
			}
			_, err := c.change(l, session.Place{Node: c.cfg.NodeName})
			switch {
			case err != nil: // it ends; then it leaves the queue by itself
				<-c.placing
			case alone:
				c.place(l)
			case !c.tasks.spawn(func() { c.place(l) }):
				<-c.placing
			}
		}
	}
}

// head takes the next of the line, if it may be placed.
func (c *Control) head() (l *live, alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pressed = c.pressed && c.queue.Waiting() > 0
	for !c.blocked {
		id, ok := c.queue.Next()
		if !ok {
			break
		}
		if l := c.live[id]; l != nil {
			return l, c.pressed
		}
		c.queue.Done(id)
	}
	return nil, false
}

// command is what the node is told.
func (c *Control) command(l *live, row session.Row, p *payload) node.CreateRequest {
	spec := &l.rec.Spec
	claim := spec.Claim()
	claim.Env = p.env
	claim.Mounts = append(slices.Clip(claim.Mounts), p.mounts...)
	if claim.Hostname == "" {
		claim.Hostname = row.ID
	}
	maxRuntime := spec.Session.MaxRuntime()
	if t := time.Duration(c.cfg.Scheduler.TaskTimeoutSeconds) * time.Second; t > 0 && (maxRuntime == 0 || t < maxRuntime) {
		maxRuntime = t
	}
	var code io.Reader
	if p.code != nil {
		code = bytes.NewReader(p.code.tar)
	}
	return node.CreateRequest{
		Session: row.ID, Version: row.Version, Project: l.rec.Project,
		Root: l.root.runtime, RootWritable: !spec.ReadOnlyRoot(), Claim: claim,
		Code: code, CodeDir: p.codeDir, Start: startOf(l.root.template.Start),
		Network: p.network, Trusts: p.trusts, Preflight: preflightOf(&spec.Network), Shared: p.shared,
		MaxIdle: spec.Session.MaxIdle(), MaxRuntime: maxRuntime, MaxSuspended: spec.Session.MaxSuspended(), Runtime: spec.Runtime, NoPool: l.rec.NoPool,
	}
}

func startOf(s template.StartCommand) node.Start {
	return node.Start{Command: s.Command, Ready: s.Ready, User: s.User, Cwd: s.Cwd}
}

// show is a session as of now, with its place in the line.
func (c *Control) show(l *live) *Session {
	row, _ := l.look()
	if row.Phase == session.Pending {
		c.mu.Lock()
		position := c.queue.Position(row.ID)
		waiting := c.queue.Waiting()
		c.mu.Unlock()
		if position > 0 {
			why := row.Reason
			if why == "" {
				why = "waits for its turn"
			}
			row.Reason = fmt.Sprintf("number %d of %d in the queue: %s", position, waiting, why)
		}
	}
	s := view(&l.rec, row)
	if n := l.network.Load(); n != nil {
		s.Spec.Network = *n
	}
	return s
}
