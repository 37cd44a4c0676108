package node

import (
	"context"
	"errors"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/sched"
)

// Reasons why a box was not taken from the pool.
const (
	coldPoolOff     = "pool_off"
	coldNotWanted   = "no_pool"
	coldFirst       = "first_of_key" // nobody asked for this template, runtime and root mode before
	coldEmpty       = "pool_empty"
	coldClaimFailed = "claim_failed"
	coldOtherStore  = "other_store" // the pooled box's store cannot become the one that was asked for
)

// codeOp is the op id of the code injection; a session's own ops cannot clash
// with it before they run, and after it the id is taken.
const codeOp = "dsec-code"

// Create implements API.
func (n *Node) Create(ctx context.Context, req CreateRequest) (*Bound, error) {
	if req.Session == "" {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "session", "name the session", "it has no id")
	}
	rt, err := n.runtime(req.Runtime)
	if err != nil {
		return nil, err
	}
	if req.Shared == nil {
		req.Shared = &Shared{}
	}
	if err := n.enter(); err != nil {
		return nil, err
	}
	defer n.wg.Done()
	for {
		s, cctx, err := n.enlist(ctx, &req)
		if err != nil {
			return nil, err
		}
		if cctx != nil {
			return n.make(cctx, s, rt, &req)
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return nil, errdefs.From(ctx.Err())
		}
		// Another caller's cancellation is not ours: make it ourselves.
		if s.err == nil || !isCanceled(s.err) || ctx.Err() != nil {
			return s.bound, s.err
		}
	}
}

// enlist registers the session. With a context, the caller has to make its box;
// without one, somebody else does already and s.ready tells when.
func (n *Node) enlist(ctx context.Context, req *CreateRequest) (*session, context.Context, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.sessions[req.Session]; s != nil {
		state, _ := s.current()
		switch {
		case s.version != req.Version:
			return nil, nil, errdefs.Userf(errdefs.Conflict, "session "+req.Session, "destroy its box first",
				"it has a box of version %d here, asked for is version %d", s.version, req.Version)
		case over(s.ready) && (state == Destroying || state == Lost):
			e := errdefs.Infraf(errdefs.ScopeBox, errdefs.Conflict, "session "+req.Session, "its earlier box is %s and has to be reclaimed first", state)
			e.Remedy = "destroy it, then create again"
			return nil, nil, e
		}
		return s, nil, nil
	}
	if n.draining.Load() {
		e := errdefs.Limitf(errdefs.NodeFull, "node", "it is tried on another node or when the drain ends", "the node is draining and takes no new boxes")
		e.Scope, e.Retryable = errdefs.ScopeNode, true
		return nil, nil, e
	}
	s := &session{
		id: req.Session, version: req.Version, state: Making, index: -1, ready: make(chan struct{}),
		maxIdle: req.MaxIdle, maxRuntime: req.MaxRuntime, maxSuspended: req.MaxSuspended,
	}
	ctx, s.cancel = context.WithCancel(ctx)
	n.sessions[s.id] = s
	return s, ctx, nil
}

// make gives the session a box and says so, or leaves nothing.
func (n *Node) make(ctx context.Context, s *session, rt runtime.Runtime, req *CreateRequest) (*Bound, error) {
	cancel := s.cancel
	defer cancel()
	// Closing the node ends what is being made; the caller's end does it through ctx.
	defer context.AfterFunc(n.ctx, cancel)()
	began := time.Now()
	bound := &Bound{Timing: make(map[string]time.Duration, 6)}
	preflight := n.preflight(ctx, req)
	err := n.obtain(ctx, s, rt, req, bound)
	if err == nil {
		err = n.openNetwork(ctx, s, req, bound, preflight)
	}
	if err == nil {
		err = n.inject(ctx, s, req, bound)
	}
	if err == nil {
		err = n.start(ctx, s, req, bound)
	}
	if err == nil {
		err = n.bind(ctx, s, bound)
	}
	bound.Timing["total"] = time.Since(began)
	if err != nil {
		err = errdefs.From(err)
		n.unwind(s)
		bound = nil
	}
	n.metrics.created(bound, err, time.Since(began))
	s.settle(bound, err)
	n.spares.poke()
	return bound, err
}

// obtain takes a box from the pool or makes one.
func (n *Node) obtain(ctx context.Context, s *session, rt runtime.Runtime, req *CreateRequest, bound *Bound) error {
	m := meta{
		Session: req.Session, Version: req.Version, Project: req.Project, Runtime: rt.Name(), Template: req.Root.Template,
		RootWritable: req.RootWritable, Limits: req.Claim.Limits, MaxIdle: req.MaxIdle, MaxRuntime: req.MaxRuntime, MaxSuspended: req.MaxSuspended, Since: time.Now(),
		Trusts: req.Trusts,
	}
	if req.Network != nil {
		phases, err := req.Shared.encode(req.Network)
		if err != nil {
			return err
		}
		m.Network = &networkMeta{Phases: phases, Phase: req.Network.First().Phase(), Proxied: n.cfg.Proxied}
	}
	b, cold := n.fromPool(&m, req)
	if b != nil {
		err := n.claim(ctx, s, b, &m, req, bound)
		if err == nil || ctx.Err() != nil || !retryCold(err) {
			return err
		}
		if cold = coldClaimFailed; errors.Is(err, errUnsupported) {
			cold = coldOtherStore
		}
		n.log.Warn("claim of a pooled box failed, making one", "box", b.id, "session", s.id, "reason", cold, "err", err)
		if err := n.reclaim(ctx, b); err != nil {
			return err
		}
	}
	m.ColdReason = cold
	n.metrics.cold(cold)
	err := n.fresh(ctx, s, rt, &m, req, bound)
	if err == nil || ctx.Err() != nil || errdefs.From(err).Class != errdefs.Infrastructure {
		return err
	}
	// What failed may be well again, such as a spawner that was killed in between.
	_, failed := s.current()
	if failed == nil {
		return err
	}
	n.log.Warn("a box could not be made, making another", "box", failed.id, "session", s.id, "err", err)
	if n.reclaim(ctx, failed) != nil {
		return err
	}
	return n.fresh(ctx, s, rt, &m, req, bound)
}

// retryCold tells whether making a box from scratch may succeed where a claim did not.
func retryCold(err error) bool {
	e := errdefs.From(err)
	return e.Class == errdefs.Infrastructure || e.Class == errdefs.Policy || e.Reason == errdefs.Unsupported
}

// fresh makes a box for the session.
func (n *Node) fresh(ctx context.Context, s *session, rt runtime.Runtime, m *meta, req *CreateRequest, bound *Bound) error {
	b, err := n.reserve(rt, m)
	if err != nil {
		return err
	}
	n.attach(s, b)
	bound.Box, bound.ColdReason = b.id, m.ColdReason
	lap := time.Now()
	n.waiting.Add(1)
	err = take(ctx, n.creates)
	n.waiting.Add(-1)
	if err != nil {
		return err
	}
	defer func() { <-n.creates }()
	bound.Timing["wait"] = time.Since(lap)
	lap = time.Now()
	err = n.build(ctx, b, runtime.Config{ID: b.id, Root: req.Root, RootWritable: req.RootWritable, Claim: req.Claim})
	bound.Timing["make"] = time.Since(lap)
	return err
}

// reserve admits a box and gives it its place in the books. Nothing of it exists yet.
func (n *Node) reserve(rt runtime.Runtime, m *meta) (*box, error) {
	d := n.demand(m)
	if m.Session == "" {
		if err := n.ledger.replace(sched.Demand{}, d); err != nil {
			return nil, err
		}
	} else if err := n.admit(sched.Demand{}, d); err != nil {
		return nil, err
	}
	if m.Session != "" {
		if b := n.spares.take(rt); b != nil {
			b.mu.Lock()
			b.meta, b.demand = *m, d
			b.mu.Unlock()
			return b, nil
		}
	}
	b := &box{id: n.newBoxID(), rt: rt, meta: *m, demand: d}
	n.mu.Lock()
	n.boxes[b.id] = b
	n.mu.Unlock()
	return b, nil
}

// build journals, makes the box and journals that it is there. After an error
// the box has to be reclaimed.
func (n *Node) build(ctx context.Context, b *box, cfg runtime.Config) error {
	if err := n.journal.append(&record{Kind: recCreating, Box: b.id, Meta: &b.meta}); err != nil {
		return err
	}
	b.mu.Lock()
	b.begun = true
	b.mu.Unlock()
	r, err := b.rt.Create(ctx, cfg)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.rbox = r
	b.mu.Unlock()
	rec := r.Record()
	return n.journal.append(&record{Kind: recMade, Box: b.id, Record: &rec})
}

// unwind removes what a failed create has made. What cannot be removed stays,
// with its promise, until Destroy or a patrol has removed it.
func (n *Node) unwind(s *session) {
	n.dropGuest(s)
	_, b := s.current()
	s.become(Destroying, n.cfg.boot(), Making)
	if b != nil {
		// The creator's ctx has ended, perhaps; the reclaim goes on all the same.
		if err := n.reclaim(context.WithoutCancel(n.ctx), b); err != nil {
			n.log.Error("a failed create left a box that could not be removed yet", "box", b.id, "session", s.id, "err", err)
			return
		}
	}
	n.forget(s)
}

// attach ties box and session together.
func (n *Node) attach(s *session, b *box) {
	s.mu.Lock()
	s.box = b
	s.mu.Unlock()
	b.mu.Lock()
	b.session = s
	b.mu.Unlock()
}

// forget takes the session out of the books.
func (n *Node) forget(s *session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sessions[s.id] == s {
		delete(n.sessions, s.id)
	}
}

// take waits in line for one of tokens.
func take(ctx context.Context, tokens chan struct{}) error {
	select {
	case tokens <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errdefs.From(ctx.Err())
	}
}

func isCanceled(err error) bool {
	e := errdefs.From(err)
	return e.Reason == errdefs.Canceled || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
