package node

import (
	"context"
	"errors"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// Suspend implements API. A box that is suspended already stays so.
func (n *Node) Suspend(ctx context.Context, id string) error {
	return n.change(ctx, id, func(s *session, b *box, r runtime.Box, state State) error {
		if state == Suspended {
			return nil
		}
		if state != Live {
			return unfit(s, state)
		}
		if err := r.Freeze(ctx); err != nil {
			return err
		}
		if err := n.turn(s, b, Suspended, Live); err != nil {
			return errors.Join(err, r.Thaw(ctx)) // as the books say
		}
		return nil
	})
}

// Resume implements API. A live box stays live; one in audit stays in audit.
func (n *Node) Resume(ctx context.Context, id string) error {
	return n.change(ctx, id, func(s *session, b *box, r runtime.Box, state State) error {
		if state == Live {
			return nil
		}
		if state != Suspended {
			return unfit(s, state)
		}
		if err := r.Thaw(ctx); err != nil {
			return err
		}
		s.last.Store(int64(n.cfg.boot()))
		if err := n.turn(s, b, Live, Suspended); err != nil {
			return errors.Join(err, r.Freeze(ctx)) // as the books say
		}
		return nil
	})
}

// runtimeOver puts a box whose run-time clock ran out into audit.
func (n *Node) runtimeOver(s *session) {
	err := n.change(n.ctx, s.id, func(s *session, b *box, r runtime.Box, state State) error {
		if state != Live {
			return nil
		}
		now := n.cfg.boot()
		if !s.become(Audit, now, Live) {
			return nil // it ended meanwhile
		}
		n.schedule(s, now)
		// A journal that cannot be written lets no box outlive its deadline: a next node
		// finds the run time over by itself.
		n.note(s.stateRecord(b, Audit, now))
		n.emit(Event{Kind: RuntimeOver, Session: s.id, Box: b.id})
		return n.silence(s, r)
	})
	if state, _ := s.current(); err != nil && state == Audit && n.ctx.Err() == nil {
		n.log.Error("a box whose run time is over could not be stopped", "session", s.id, "err", err)
	}
}

// silence ends everything that the agent runs, for good. Files stay readable, which they would
// not be in a frozen box: what reads them is the agent's, so that it is accounted to it.
func (n *Node) silence(s *session, r runtime.Box) error {
	// What resists for so long ends with the session, after the audit's grace.
	ctx, cancel := context.WithTimeout(n.ctx, time.Minute)
	defer cancel()
	if err := r.KillAgent(ctx); err != nil {
		// Better frozen and unreadable than running.
		return errors.Join(err, r.Freeze(n.ctx))
	}
	// Whoever acquired the guest before may still start something: it loses the
	// connection, after it was told how its running ops ended.
	n.awaitEnds(s)
	n.dropGuest(s)
	return r.KillAgent(ctx)
}

// awaitEnds waits, not for long, until those who wait for killed ops have been told
// how they ended, and nobody uses the guest any more.
func (n *Node) awaitEnds(s *session) {
	ctx, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	for s.guest.Load() != nil && s.active.Load() > 0 {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
}

// change runs fn for a bound box; two changes of one session never overlap.
func (n *Node) change(ctx context.Context, id string, fn func(*session, *box, runtime.Box, State) error) error {
	if err := n.enter(); err != nil {
		return err
	}
	defer n.wg.Done()
	s := n.session(id)
	if s == nil {
		return unknown(id)
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	state, b := s.current()
	if state == Making || b == nil {
		return unfit(s, state)
	}
	r := b.runtimeBox()
	if r == nil {
		return unfit(s, state)
	}
	err := fn(s, b, r, state)
	if err == nil {
		return nil
	}
	if ended(r) {
		return unfit(s, Lost)
	}
	return errdefs.From(err)
}

// turn changes the state of a bound box, in the journal first, and its clocks. After an error
// nothing has changed.
func (n *Node) turn(s *session, b *box, to, from State) error {
	now := n.cfg.boot()
	if state, _ := s.current(); state != from {
		return unfit(s, state)
	}
	if err := n.journal.append(s.stateRecord(b, to, now)); err != nil {
		return err
	}
	if !s.become(to, now, from) { // it ended meanwhile, which the journal has too
		state, _ := s.current()
		return unfit(s, state)
	}
	n.schedule(s, now)
	return nil
}

// stateRecord says that the session's box is in state to since now.
func (s *session) stateRecord(b *box, to State, now time.Duration) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &record{Kind: recState, Box: b.id, State: to, At: now, Suspended: s.suspended}
	if s.state == Suspended && to != Suspended {
		r.Suspended += now - s.stateAt
	}
	return r
}

// unknown is the error for a session that has no box here.
func unknown(id string) error {
	return errdefs.Userf(errdefs.NotFound, "session "+id, "ask the server where the session is", "it has no box on this node")
}

// unfit says why a box in this state cannot do what was asked.
func unfit(s *session, state State) error {
	object := "session " + s.id
	switch state {
	case Making:
		return errdefs.Userf(errdefs.Conflict, object, "wait until it is RUNNING", "its box is still being made")
	case Live:
		return errdefs.Userf(errdefs.Conflict, object, "try again", "its box is live")
	case Suspended:
		return errdefs.Userf(errdefs.Conflict, object, "resume it first", "its box is suspended")
	case Audit:
		return errdefs.Limitf(errdefs.TimedOut, object, "read what you need and stop it; raise max_runtime_seconds for the next one", "its run time is over and its box is kept for audit only")
	}
	s.mu.Lock()
	cause := s.cause
	s.mu.Unlock()
	return ending(object, cause)
}

// ending says how a box ended.
func ending(object string, cause EventKind) error {
	switch cause {
	case BoxTampered:
		return errdefs.Policyf(errdefs.BoxTampered, object, "create a new session", "its guest died or broke the protocol, and the box was destroyed")
	case BoxFailed:
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.BoxGone, object, "the node could not keep its box")
	}
	return errdefs.Policyf(errdefs.BoxGone, object, "create a new session", "its box has ended")
}
