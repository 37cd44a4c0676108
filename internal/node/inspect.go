package node

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Inventory implements API. Boxes in the making are not in it.
func (n *Node) Inventory(context.Context) ([]Inventory, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	out := make([]Inventory, 0, len(n.sessions))
	for _, s := range n.sessions {
		if i := s.inventory(); i.State != string(Making) {
			out = append(out, i)
		}
	}
	return out, nil
}

func (s *session) inventory() Inventory {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := Inventory{Session: s.id, Version: s.version, State: string(s.state), Cause: s.cause}
	if s.box != nil {
		i.Box = s.box.id
		s.box.mu.Lock()
		i.Since = s.box.meta.Since
		s.box.mu.Unlock()
	}
	return i
}

// Inspect implements API.
func (n *Node) Inspect(ctx context.Context, id string) (*Inspect, error) {
	s := n.session(id)
	if s == nil {
		return nil, unknown(id)
	}
	out := &Inspect{Inventory: s.inventory()}
	state, b := s.current()
	if b == nil {
		return out, nil
	}
	b.mu.Lock()
	m, r := b.meta, b.rbox
	b.mu.Unlock()
	out.Runtime, out.Template, out.Limits = m.Runtime, m.Template, m.Limits
	out.Pooled, out.ColdReason = m.Pooled, m.ColdReason
	idle := n.cfg.boot() - time.Duration(s.last.Load())
	out.LastActive = time.Now().Add(-idle)
	if s.active.Load() == 0 {
		out.IdleFor = idle
	}
	b.net.mu.Lock()
	out.Network = b.net.state()
	b.net.mu.Unlock()
	if r == nil || state == Making {
		return out, nil
	}
	var err error
	if out.Usage, err = r.Usage(ctx); err != nil {
		return nil, errdefs.From(err)
	}
	if state == Live {
		out.RunningOps = n.runningOps(ctx, s)
	}
	return out, nil
}

// inspectPatience is how long a guest may take to list its ops for Inspect.
const inspectPatience = 2 * time.Second

// runningOps asks the guest, if it is connected; a box that nobody has used has no ops.
func (n *Node) runningOps(ctx context.Context, s *session) int {
	s.asking.Add(1)
	defer s.asking.Add(-1)
	g := s.guest.Load()
	if g == nil || over((*g).Done()) {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, inspectPatience)
	defer cancel()
	ops, err := (*g).List(ctx)
	if err != nil {
		return -1
	}
	running := 0
	for _, op := range ops {
		if op.Running {
			running++
		}
	}
	return running
}

// Stats implements API.
func (n *Node) Stats(context.Context) Stats {
	total, promised := n.ledger.figures()
	idle, target, hits, misses := n.pools.figures(time.Now())
	st := Stats{
		MemTotal: total.Memory, MemPromised: promised.Memory, CPUTotal: total.CPU, CPUPromised: promised.CPU,
		Pooled: idle, PoolTarget: target, PoolHits: hits, ColdReasons: misses, Creating: len(n.creates),
		OrphansRemoved: n.metrics.removed.Load(),
	}
	for _, c := range misses {
		st.PoolMisses += c
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, s := range n.sessions {
		switch state, _ := s.current(); state {
		case Live, Suspended, Audit:
			st.Boxes++
		}
	}
	return st
}
