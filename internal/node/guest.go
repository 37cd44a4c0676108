package node

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
)

// idleConn is how long an unused guest connection is kept. Its reader and buffers are most of what an idle box costs in the
// daemon, and a guest that nobody is connected to rests, which halves what the box takes; waking it costs the next op 2 ms.
const idleConn = 5 * time.Second

// Acquire implements API. The guest of a box in audit answers what reads and
// refuses what executes or changes.
func (n *Node) Acquire(ctx context.Context, id string) (guestclient.API, func(), error) {
	s := n.session(id)
	if s == nil {
		return nil, nil, unknown(id)
	}
	if state, _ := s.current(); state == Audit {
		s.awaitChange() // the process that reads files is one of those being killed
	}
	s.active.Add(1)
	s.touched.Store(true)
	var released atomic.Bool
	release := func() {
		if released.CompareAndSwap(false, true) {
			s.last.Store(int64(n.cfg.boot()))
			s.active.Add(-1)
			n.verify(s)
		}
	}
	state, b := s.current()
	if state != Live && state != Audit {
		s.active.Add(-1)
		return nil, nil, unfit(s, state)
	}
	g, err := n.dialGuest(ctx, s, b)
	if err != nil {
		release()
		return nil, nil, err
	}
	if b.networked() {
		g = opGuest{API: g, ops: &b.ops}
	}
	// It may have become so meanwhile. A connection that is given out unguarded
	// before that is closed by silence.
	if state, _ = s.current(); state == Audit {
		g = auditGuest{API: g, session: s}
	}
	return g, release, nil
}

// dialGuest gives the session's guest connection, made anew when there is none or it was lost.
func (n *Node) dialGuest(ctx context.Context, s *session, b *box) (guestclient.API, error) {
	if g := s.guest.Load(); g != nil && !over((*g).Done()) {
		return *g, nil
	}
	if err := n.enter(); err != nil {
		return nil, err
	}
	defer n.wg.Done()
	if err := s.dialing.do(ctx, &n.wg, func() error { return n.connect(s, b) }); err != nil {
		return nil, err
	}
	if g := s.guest.Load(); g != nil {
		return *g, nil
	}
	state, _ := s.current()
	return nil, unfit(s, state)
}

// verify connects again, in the background, when the connection was lost while it
// was used: what broke it may be a guest that no other op can reach either, and then the
// session ends now and not at its next op.
func (n *Node) verify(s *session) {
	g := s.guest.Load()
	if g == nil || !over((*g).Done()) {
		return
	}
	state, b := s.current()
	if state != Live && state != Audit || n.enter() != nil {
		return
	}
	go func() {
		defer n.wg.Done()
		s.asking.Add(1)
		defer s.asking.Add(-1)
		_ = s.dialing.do(n.ctx, &n.wg, func() error { return n.connect(s, b) }) // which draws the consequences
	}()
}

var errUnsupported = &errdefs.Error{Reason: errdefs.Unsupported}

// connect makes the session's guest connection.
func (n *Node) connect(s *session, b *box) error {
	s.hanging.Lock()
	defer s.hanging.Unlock()
	if g := s.guest.Load(); g != nil && !over((*g).Done()) {
		return nil
	}
	r := b.runtimeBox()
	if r == nil {
		state, _ := s.current()
		return unfit(s, state)
	}
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.GuestTimeout)
	defer cancel()
	conn, err := r.Dial(ctx)
	if err != nil && nodeFault(err) {
		return errdefs.From(err)
	}
	if err != nil {
		return n.guestFault(s, b, err)
	}
	g, err := n.cfg.Connect(ctx, conn)
	if errors.Is(err, errUnsupported) {
		return err // an adopted guest of long ago is nobody's fault
	}
	if err != nil {
		return n.guestFault(s, b, err)
	}
	if old := s.guest.Swap(&g); old != nil {
		_ = (*old).Close()
	}
	if b.destroying.Load() {
		n.dropGuest(s)
	}
	return nil
}

// guestFault decides whose fault a failed connection is, from what can be seen
// outside of the box: the daemon's own resources and the box's PID 1. A guest that is
// dead or silent while those are well is the box's fault.
func (n *Node) guestFault(s *session, b *box, err error) error {
	if n.ctx.Err() != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "node", "it is stopping")
	}
	if b.destroying.Load() {
		state, _ := s.current()
		return unfit(s, state)
	}
	cause := BoxTampered
	if r := b.runtimeBox(); r == nil || ended(r) {
		cause = BoxLost
	}
	n.log.Warn("guest of a healthy box does not answer", "session", s.id, "box", b.id, "cause", cause, "err", err)
	n.lose(s, b, cause)
	return ending("session "+s.id, cause)
}

// nodeFault tells whether the runtime could not even try: it says so, and not because
// of what the guest's end of the socket did.
func nodeFault(err error) bool {
	for _, box := range []error{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, syscall.EAGAIN, syscall.ETIMEDOUT, context.DeadlineExceeded} {
		if errors.Is(err, box) {
			return false
		}
	}
	for _, own := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS} {
		if errors.Is(err, own) {
			return true
		}
	}
	e, ok := errors.AsType[*errdefs.Error](err)
	return ok && e.Class == errdefs.Infrastructure
}

// lose ends a session's box that nobody asked to end: it is reclaimed in the background, its
// end is told and remembered until Destroy.
func (n *Node) lose(s *session, b *box, cause EventKind) {
	if !n.markLost(s, cause) {
		return
	}
	n.clock.remove(s)
	n.emit(Event{Kind: cause, Session: s.id, Box: b.id})
	n.wg.Go(func() {
		if err := n.reclaim(n.ctx, b); err != nil && n.ctx.Err() == nil {
			n.log.Error("a lost box could not be removed yet", "box", b.id, "session", s.id, "err", err)
		}
	})
}

func (n *Node) markLost(s *session, cause EventKind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.state {
	case Live, Suspended, Audit:
		s.state, s.cause, s.stateAt = Lost, cause, n.cfg.boot()
		return true
	}
	return false
}

// dropGuest closes the session's guest connection, if any.
func (n *Node) dropGuest(s *session) {
	if g := s.guest.Swap(nil); g != nil {
		_ = (*g).Close()
	}
}

// rest closes a connection that nobody has used lately. An op goes on without one.
func (n *Node) rest(s *session, now time.Duration) {
	g := s.guest.Load()
	if g == nil || s.inUse() || now-time.Duration(s.last.Load()) < idleConn || !s.hanging.TryLock() {
		return
	}
	defer s.hanging.Unlock()
	if !s.guest.CompareAndSwap(g, nil) {
		return
	}
	// Whoever acquires from now on finds no connection and makes one. Whoever was
	// faster may hold this one: then it stays.
	if s.inUse() && s.guest.CompareAndSwap(nil, g) {
		return
	}
	_ = (*g).Close()
}

func (s *session) inUse() bool { return s.active.Load() > 0 || s.asking.Load() > 0 }

func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
