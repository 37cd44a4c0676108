package control

import (
	"context"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store"
)

// stalled is how late a lease's timer may be. Later, this process itself stood still, and
// has not heard what its clients said meanwhile: that is an outage of the server.
const stalled = 2 * time.Second

func (c *Control) sinceBegan() time.Duration { return c.cfg.Now().Sub(c.began) }

// own begins to watch an owner, who has just given a sign of life.
func (c *Control) own(l store.Lease) *owner {
	o := &owner{Lease: l, turn: newTurn()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if was := c.owners[l.ID]; was != nil { // revived twice at a time
		was.beat = c.sinceBegan()
		return was
	}
	c.owners[l.ID] = o
	o.beat = c.sinceBegan()
	o.timer = time.AfterFunc(l.TTL, func() { c.due(o) })
	return o
}

func (c *Control) disown(o *owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.timer.Stop()
	if c.owners[o.ID] == o {
		delete(c.owners, o.ID)
	}
}

func (c *Control) findOwner(project, id string) *owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.owners[id]; o != nil && o.Project == project {
		return o
	}
	return nil
}

// restoreOwners watches the owners of before a restart. Each has its whole TTL: while no
// server ran, nobody could say that he lives.
func (c *Control) restoreOwners(ctx context.Context) error {
	leases, err := c.store.LiveLeases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases {
		c.own(*l)
	}
	return nil
}

// mayOwn tells whether new sessions can be given to a lease.
func (c *Control) mayOwn(ctx context.Context, project, id string) error {
	if id == "" {
		return nil
	}
	known, o, err := c.anyLease(ctx, project, id)
	if err != nil || o != nil {
		return err // makeChunk looks again, under the lock that an ending takes
	}
	return leaseOver(known)
}

// owned gives a lease's sessions that have not ended.
func (c *Control) owned(id string) []*live {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*live
	for _, l := range c.live {
		if l.rec.Lease == id {
			out = append(out, l)
		}
	}
	return out
}

// endedMeanwhile is the error of a create whose lease ended, one way or the other, while its
// sessions were made: they have no owner. c.mu is held.
func endedMeanwhile(id string, o *owner) error {
	object := "lease " + id
	if o == nil || o.ending == leaseReleased {
		return errdefs.Userf(errdefs.OwnerLost, object, "make a new lease and create them again", "it ended while its sessions were made")
	}
	return errdefs.Limitf(errdefs.OwnerLost, object, "renew it in time; make a new lease and create them again",
		"it expired while its sessions were made: its owner gave no sign of life for %s", o.TTL)
}

// ownerLives tells whether a session has an owner who is not silent for too long.
func (c *Control) ownerLives(l *live) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.owners[l.rec.Lease]
	return o != nil && o.ending == ""
}

// markEnding makes the end of a lease known: from now on it gets no sessions.
func (c *Control) markEnding(o *owner, how string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.ending = how
	o.timer.Stop()
}

// markAlive takes markEnding back: it was only a sign of life.
func (c *Control) markAlive(o *owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.ending = ""
	o.beat = c.sinceBegan()
	o.timer.Reset(o.TTL)
}

// due looks at an owner whose TTL may be over.
func (c *Control) due(o *owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.ending != "" || c.ctx.Err() != nil {
		return
	}
	silent := c.sinceBegan() - o.beat
	switch {
	case silent < o.TTL:
		o.timer.Reset(o.TTL - silent)
		return
	case silent > o.TTL+stalled:
		c.log.Warn("this server stood still; an owner gets its whole ttl again", "lease", o.ID, "late", silent-o.TTL)
		o.beat = c.sinceBegan()
		o.timer.Reset(o.TTL)
		return
	}
	if o.turn.tryTake() { // else somebody releases it
		o.ending = leaseExpired
		if !c.tasks.spawn(func() { c.expireOwner(o) }) {
			o.turn.give()
		}
	}
}

// expireOwner does with the sessions of a silent owner what its lease says. o.turn is held, and given back.
func (c *Control) expireOwner(o *owner) {
	defer o.turn.give()
	lives := c.owned(o.ID)
	c.counters.OwnersLost.Add(1)
	c.log.Warn("an owner is silent", "lease", o.ID, "ttl", o.TTL, "sessions", len(lives), "on_expiry", o.OnExpiry)
	if o.OnExpiry == SuspendSessions {
		lives = c.suspendAll(lives, "its owner was silent for "+o.TTL.String())
		if c.ctx.Err() != nil {
			return // what is left could be suspended: the next server does it
		}
	}
	for _, l := range lives {
		c.conclude(l, session.Fail{Err: ownerLost(o, l.rec.ID)})
	}
	c.endOwner(o, leaseExpired) // last, so that after a crash in between the next server does it again
}

// endOwner writes how a lease ended, however long that takes, and forgets its owner. o.turn is held.
func (c *Control) endOwner(o *owner, how string) {
	err := c.retry(func() error { return c.store.EndLease(c.ctx, o.ID, how, c.cfg.Now()) }, func(err error) {
		c.counters.WriteFailures.Add(1)
		c.log.Error("the end of a lease could not be written; it is tried again", "lease", o.ID, "err", err)
	})
	if err == nil {
		c.disown(o)
	}
}

// suspendAll freezes sessions and gives those that could not be: they have no box yet, or the node failed.
func (c *Control) suspendAll(lives []*live, reason string) (rest []*live) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, freezing)
	for _, l := range lives {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := c.suspendFor(c.ctx, l, reason); err != nil && !l.current().Ending() {
				mu.Lock()
				defer mu.Unlock()
				rest = append(rest, l)
			}
		})
	}
	wg.Wait()
	return rest
}

func ownerLost(o *owner, id string) *errdefs.Error {
	return errdefs.Limitf(errdefs.OwnerLost, "session "+id, "renew its lease in time; create it again",
		"its owner, lease %s, gave no sign of life for %s", o.ID, o.TTL)
}
