package control

import (
	"sync/atomic"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
)

// Counters since the start. Read them at any time.
type Counters struct {
	Created, Queued, Refused, Revoked  atomic.Int64 // sessions; Refused by queue or quota; Revoked: creates
	Pooled, Cold, NodeFull             atomic.Int64 // placements
	Completed, IdleEnds, Audits        atomic.Int64
	SuspendedEnds, OwnersLost          atomic.Int64
	FailedUser, FailedLimit            atomic.Int64
	FailedPolicy, FailedInfrastructure atomic.Int64
	BoxesLost, OOMKills, MemWarnings   atomic.Int64
	IdempotentHits                     atomic.Int64
	ReclaimRetries, WriteFailures      atomic.Int64
	Orphans                            atomic.Int64
}

func (c *Counters) end(row session.Row) {
	if row.Error == nil {
		c.Completed.Add(1)
		return
	}
	switch row.Error.Class {
	case errdefs.User:
		c.FailedUser.Add(1)
	case errdefs.Limit:
		c.FailedLimit.Add(1)
	case errdefs.Policy:
		c.FailedPolicy.Add(1)
	default:
		c.FailedInfrastructure.Add(1)
	}
}

// Counters gives the control plane's counters.
func (c *Control) Counters() *Counters { return &c.counters }

// Gauges are figures of now.
type Gauges struct {
	Phases          map[string]int // live sessions by phase
	Active, Waiting int            // in the queue's sense
}

// Gauges counts what is live.
func (c *Control) Gauges() Gauges {
	g := Gauges{Phases: map[string]int{}}
	for _, p := range session.Phases {
		if !p.Terminal() {
			g.Phases[string(p)] = 0
		}
	}
	for _, l := range c.all() {
		row, _ := l.look()
		g.Phases[string(row.Phase)]++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g.Active, g.Waiting = c.queue.Active(), c.queue.Waiting()
	return g
}
