package node

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/archive"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
)

// claim turns a pooled box into the session's. It is journaled first: a crash
// in between leaves a used box that no pool may have again.
func (n *Node) claim(ctx context.Context, s *session, b *box, m *meta, req *CreateRequest, bound *Bound) error {
	b.mu.Lock()
	old, r := b.demand, b.rbox
	b.mu.Unlock()
	if r == nil {
		return errdefs.Infraf(errdefs.ScopeBox, errdefs.BoxGone, "box "+b.id, "it ended in the pool")
	}
	// What a smaller session does not need is given back only when it is bound.
	d := n.demand(m)
	d.Memory = max(d.Memory, old.Memory)
	if err := n.admit(old, d); err != nil {
		n.pools.giveBack(b) // nothing has touched it
		return err
	}
	n.attach(s, b)
	bound.Box, bound.Pooled = b.id, true
	m.Pooled = true
	b.mu.Lock()
	b.meta, b.demand = *m, d
	b.mu.Unlock()
	if err := take(ctx, n.claims); err != nil {
		return err
	}
	defer func() { <-n.claims }()
	if err := n.journal.append(&record{Kind: recClaiming, Box: b.id, Meta: m}); err != nil {
		return err
	}
	lap := time.Now()
	err := r.Claim(ctx, req.Claim)
	bound.Timing["claim"] = time.Since(lap)
	if err != nil {
		bound.Pooled, m.Pooled = false, false
	}
	return err
}

// inject unpacks the code, if there is any, before anybody else sees the box.
func (n *Node) inject(ctx context.Context, s *session, req *CreateRequest, bound *Bound) error {
	if req.Code == nil {
		return nil
	}
	return n.withGuest(ctx, s, bound, "code", func(g guestclient.API) error { return unpack(ctx, g, req) })
}

// withGuest does a step of a create that needs the guest, and takes its time.
func (n *Node) withGuest(ctx context.Context, s *session, bound *Bound, step string, do func(guestclient.API) error) error {
	lap := time.Now()
	_, b := s.current()
	s.asking.Add(1)
	defer s.asking.Add(-1)
	g, err := n.dialGuest(ctx, s, b)
	if err == nil {
		err = do(g)
	}
	bound.Timing[step] = time.Since(lap)
	return err
}

func unpack(ctx context.Context, g guestclient.API, req *CreateRequest) error {
	code, err := archive.Plain(req.Code)
	if err != nil {
		return err
	}
	defer code.Close()
	_, err = g.TarIn(ctx, codeOp, req.CodeDir, req.Claim.User, code)
	return err
}

// bind makes the box the session's for good: from here on it is adopted after a crash.
func (n *Node) bind(ctx context.Context, s *session, bound *Bound) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, b := s.current()
	now := n.cfg.boot()
	line := &record{Kind: recBound, Box: b.id, At: now}
	if bound.Pooled { // the claim has changed what Open needs
		rec := b.runtimeBox().Record()
		line.Record = &rec
	}
	if err := n.journal.append(line); err != nil {
		return err
	}
	b.mu.Lock()
	b.made = true
	b.meta.Started = now
	want := n.demand(&b.meta)
	old := b.demand
	b.demand = want
	b.mu.Unlock()
	if old != want {
		_ = n.ledger.replace(old, want) // it only gets smaller
		n.freed()
	}
	s.last.Store(int64(now))
	s.mu.Lock()
	s.started, s.stateAt, s.state = now, now, Live
	s.mu.Unlock()
	n.schedule(s, now)
	return nil
}
