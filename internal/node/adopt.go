package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/sched"
)

// adopters bounds the boxes that are opened at the same time after a restart.
const adopters = 64

// takeOver makes the world and the books agree. Adopted are bound boxes and idle pooled ones:
// nothing has run in those, and making them anew would cost the burst after a
// restart what the pool is for. Everything else that the journal or a sweep knows is removed.
func (n *Node) takeOver(ctx context.Context, p *replayed) error {
	if p.damaged > 0 {
		n.log.Warn("damaged journal records skipped", "records", p.damaged)
	}
	if p.bootID != n.cfg.bootID {
		// The machine was started anew: no box can have lived through it. What they left is swept.
		if len(p.boxes) > 0 {
			n.log.Warn("the machine was restarted, its boxes are gone", "boxes", len(p.boxes))
		}
		p.boxes = map[string]*journaled{}
		p.bootID, p.epoch, p.run = n.cfg.bootID, p.epoch+1, 0
	}
	p.run++
	n.epoch, n.run = p.epoch, p.run
	for id, j := range p.boxes {
		if j.meta.Runtime != "" && n.cfg.Runtimes[j.meta.Runtime] == nil {
			return errdefs.Userf(errdefs.Unsupported, "box "+id, "start the node with it, or end its boxes first", "its runtime %q is not configured", j.meta.Runtime)
		}
	}
	t := &toSweep{boxes: map[string]*box{}}
	n.openAll(ctx, p, t)
	if err := ctx.Err(); err != nil {
		return errdefs.From(err)
	}
	if err := n.sweepAll(ctx, t); err != nil {
		return err
	}
	n.settle(p, t)
	if err := n.journal.rewrite(p); err != nil {
		return unwritable(err)
	}
	return nil
}

// openAll adopts in parallel. A box that is to be kept or that could not be
// removed is in n.boxes afterwards; the sweep removes all others.
func (n *Node) openAll(ctx context.Context, p *replayed, t *toSweep) {
	type job struct {
		id string
		j  *journaled
	}
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range min(adopters, len(p.boxes)) {
		wg.Go(func() {
			for one := range jobs {
				n.adopt(ctx, one.id, one.j, t)
			}
		})
	}
	for id, j := range p.boxes {
		jobs <- job{id, j}
	}
	close(jobs)
	wg.Wait()
}

// adopt opens one box and decides what becomes of it.
func (n *Node) adopt(ctx context.Context, id string, j *journaled, t *toSweep) {
	b := &box{id: id, rt: n.cfg.Runtimes[j.meta.Runtime], meta: j.meta, begun: true}
	if j.last == recLost {
		b.gone = true
		n.adoptSession(b, j, Lost)
		return
	}
	var err error = errdefs.ErrBoxGone
	if b.rt != nil && j.record != nil {
		err = n.reopen(ctx, b, j)
	}
	switch {
	case ctx.Err() != nil:
	case err == nil && j.last == recBound:
		b.made = true
		n.keep(b, n.demand(&j.meta))
		n.adoptSession(b, j, j.state)
		if m := j.meta.Network; m != nil {
			n.resumeNetwork(ctx, b, m)
		}
	case err == nil && j.last == recPool && n.pools.on():
		b.made = true
		n.keep(b, n.demand(&j.meta))
		n.pools.mu.Lock()
		q, _ := n.pools.get(j.meta.poolKey(), time.Now())
		q.idle = append(q.idle, b)
		n.pools.mu.Unlock()
	default:
		// Half made, half claimed, half destroyed, dead or out of reach.
		b.destroying.Store(true)
		if j.last == recDestroying && j.cause != "" { // nobody had asked for its end
			j.last = recLost
		}
		if j.last == recBound {
			j.last, j.cause = recLost, BoxLost
			if !errors.Is(err, errdefs.ErrBoxGone) {
				j.cause = BoxFailed
				n.log.Error("a live box could not be opened and is removed", "box", id, "session", j.meta.Session, "err", err)
			}
		}
		switch {
		case j.last == recLost:
			n.adoptSession(b, j, Lost)
		case j.last == recDestroying && j.meta.Session != "":
			n.adoptSession(b, j, Destroying)
		}
		t.add(b)
	}
}

// reopen opens the box. A bound one is made what the journal says: the kill may have
// come between the act and its record. One that is not to be kept is destroyed.
func (n *Node) reopen(ctx context.Context, b *box, j *journaled) error {
	r, err := b.rt.Open(ctx, *j.record)
	if err != nil {
		return err
	}
	switch {
	case j.last == recBound:
		err = n.enforce(ctx, r, j.state)
	case j.last == recPool && n.pools.on():
		n.pools.mu.Lock()
		q, _ := n.pools.get(j.meta.poolKey(), time.Now())
		n.pools.mu.Unlock()
		err = n.hold(q) // a template that was removed meanwhile takes its pool with it
	}
	if err == nil && (j.last == recBound || j.last == recPool && n.pools.on()) {
		b.rbox = r
		return nil
	}
	if derr := r.Destroy(ctx); derr != nil {
		n.log.Error("a box could not be removed yet", "box", b.id, "err", derr)
		b.rbox = r
	}
	if err == nil {
		err = errdefs.ErrBoxGone
	}
	return err
}

func (n *Node) enforce(ctx context.Context, r runtime.Box, state State) error {
	switch state {
	case Suspended:
		return r.Freeze(ctx)
	case Audit:
		return errors.Join(r.Thaw(ctx), r.KillAgent(ctx))
	}
	return r.Thaw(ctx)
}

// keep enters an adopted box into the books; it is admitted, whatever the capacity is now.
func (n *Node) keep(b *box, d sched.Demand) {
	b.demand = d
	n.ledger.adopt(d)
	n.mu.Lock()
	n.boxes[b.id] = b
	n.mu.Unlock()
	n.metrics.adopted.Inc()
}

// adoptSession enters a session that an earlier node had bound.
func (n *Node) adoptSession(b *box, j *journaled, state State) {
	now := n.cfg.boot()
	s := &session{
		id: j.meta.Session, version: j.meta.Version, cancel: func() {}, ready: make(chan struct{}),
		maxIdle: j.meta.MaxIdle, maxRuntime: j.meta.MaxRuntime, maxSuspended: j.meta.MaxSuspended, index: -1,
		state: state, cause: j.cause, started: j.meta.Started, stateAt: max(j.stateAt, j.meta.Started), suspended: j.suspended,
		bound: &Bound{Box: b.id, Pooled: j.meta.Pooled, ColdReason: j.meta.ColdReason},
	}
	close(s.ready)
	s.touched.Store(true)
	s.last.Store(int64(now)) // the time without a daemon is nobody's idleness
	n.attach(s, b)
	n.mu.Lock()
	n.sessions[s.id] = s
	n.mu.Unlock()
	n.schedule(s, now)
	if state == Lost {
		n.emit(Event{Kind: j.cause, Session: s.id, Box: b.id})
	}
}

// sweepAll removes, in every runtime, whatever is not in the books, and notes in t what resists.
func (n *Node) sweepAll(ctx context.Context, t *toSweep) error {
	for name, rt := range n.cfg.Runtimes {
		orphans, err := rt.Sweep(ctx, n.known)
		if err != nil {
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "runtime "+name, "leftovers cannot be swept: %w", err)
		}
		n.count(orphans)
		for _, o := range orphans {
			if b := t.boxes[o.ID]; b != nil && o.Err != nil {
				// It keeps its promise until Destroy or a patrol has removed it.
				n.keep(b, n.demand(&b.meta))
				delete(t.boxes, o.ID)
			}
		}
	}
	return nil
}

// settle closes the books on what the sweep has removed.
func (n *Node) settle(p *replayed, t *toSweep) {
	for id, b := range t.boxes {
		if b.rbox != nil { // open, and it resisted: a sweep leaves it alone
			n.keep(b, n.demand(&b.meta))
			delete(t.boxes, id)
			continue
		}
		b.mu.Lock()
		b.gone, b.rbox = true, nil
		b.mu.Unlock()
		if s := b.session; s != nil && s.state == Destroying {
			n.forget(s)
		}
	}
	for id, j := range p.boxes {
		if j.last != recLost && !n.known(id) {
			delete(p.boxes, id)
		}
	}
}

// toSweep are the journaled boxes that only a sweep can remove.
type toSweep struct {
	mu    sync.Mutex
	boxes map[string]*box
}

func (t *toSweep) add(b *box) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.boxes[b.id] = b
}

// count logs and counts what was found.
func (n *Node) count(orphans []runtime.Orphan) {
	for _, o := range orphans {
		if o.Err != nil {
			n.log.Error("orphan could not be removed", "box", o.ID, "kind", o.Kind, "what", o.What, "err", o.Err)
			continue
		}
		n.metrics.orphan()
		n.log.Warn("orphan removed", "box", o.ID, "kind", o.Kind, "what", o.What)
	}
}
