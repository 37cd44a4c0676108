package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/guestclient"
)

// session is a session's hold on a box. It is in Node.sessions from the start of
// its Create until Destroy has proof of the reclaim.
type session struct {
	id      string
	version int64

	cancel context.CancelFunc // ends the making; guarded by mu
	ready  chan struct{}      // closed when Create has ended; bound and err are set then
	bound  *Bound
	err    error

	maxIdle, maxRuntime, maxSuspended time.Duration

	mu        sync.Mutex
	box       *box
	state     State
	cause     EventKind     // why it is Lost
	started   time.Duration // boot time when it was bound
	stateAt   time.Duration // boot time when state began
	suspended time.Duration // in all, before stateAt
	changing  sync.Mutex    // one Suspend, Resume or end of the run-time clock at a time

	// Activity. active counts what was acquired and not released; last is the boot time of the last release.
	active  atomic.Int32
	asking  atomic.Int32 // the node's own uses of the guest: they are no activity, but hold the connection
	last    atomic.Int64
	touched atomic.Bool // something was acquired since the box was made, or it was adopted

	guest   atomic.Pointer[guestclient.API]
	hanging sync.Mutex // held while the guest's connection is made, and while an unused one is taken out: whoever has just got that keeps it
	dialing flight

	due   time.Duration // guarded by clock.mu
	index int           // in the clock's heap; -1 when it is not there
}

// settle ends the making. What a session keeps for the rest of its life is small: no
// timing, and not the context of the request that made it.
func (s *session) settle(bound *Bound, err error) {
	if bound != nil {
		kept := *bound
		kept.Timing = nil
		bound = &kept
	}
	s.bound, s.err = bound, err
	s.mu.Lock()
	s.cancel = func() {}
	s.mu.Unlock()
	close(s.ready)
}

func (s *session) stopMaking() {
	s.mu.Lock()
	cancel := s.cancel
	s.mu.Unlock()
	cancel()
}

func (s *session) current() (State, *box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.box
}

// lostBy is why the session's box is lost; empty when it is not, or has no session.
func (s *session) lostBy() EventKind {
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != Lost {
		return ""
	}
	return s.cause
}

// become changes the state if it is one of from.
func (s *session) become(to State, now time.Duration, from ...State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range from {
		if s.state == f {
			if f == Suspended {
				s.suspended += now - s.stateAt
			}
			s.state, s.stateAt = to, now
			return true
		}
	}
	return false
}

// deadlines gives the boot times when the idle and the run-time clock of a live box run out, or
// when a suspended one was suspended for too long; 0: never.
func (s *session) deadlines(now time.Duration) (idle, over, suspended time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Suspended && s.maxSuspended > 0 {
		return 0, 0, s.stateAt + s.maxSuspended
	}
	if s.state != Live {
		return 0, 0, 0
	}
	if s.maxIdle > 0 {
		since := time.Duration(s.last.Load())
		if s.active.Load() > 0 {
			since = now
		}
		idle = since + s.maxIdle
	}
	if s.maxRuntime > 0 {
		over = s.started + s.suspended + s.maxRuntime
	}
	return idle, over, 0
}

// awaitChange waits for the end of a Suspend, Resume or silencing under way.
func (s *session) awaitChange() {
	s.changing.Lock()
	defer s.changing.Unlock()
}
