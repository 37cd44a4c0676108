package control

import (
	"context"
	"errors"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store"
)

// What becomes of the sessions of an owner that is silent for too long.
const (
	StopSessions    = "stop"
	SuspendSessions = "suspend"
)

// How a lease ends.
const (
	leaseReleased = "released"
	leaseExpired  = "expired"
)

// DefaultTTL is how long an owner may be silent unless its lease says otherwise.
const DefaultTTL = 30 * time.Second

// Leases are the owners of sessions: client processes that say now and then that they
// live. The sessions of one that is silent for its TTL are stopped or suspended. *Control implements it.
type Leases interface {
	// CreateLease makes a lease; with a key the same request gives the same lease.
	CreateLease(ctx context.Context, project string, req LeaseRequest) (*Lease, error)
	// RenewLease is the owner's sign of life. A lease that expired and suspended its
	// sessions lives again (revived); one that stopped them is OwnerLost.
	RenewLease(ctx context.Context, project, id string) (revived bool, err error)
	// ReleaseLease ends a lease and stops its sessions, or keeps them without an owner. It returns
	// how many there were, when those that it stopped are reclaimed. Idempotent.
	ReleaseLease(ctx context.Context, project, id string, keep bool) (sessions int, err error)
	GetLease(ctx context.Context, project, id string) (*Lease, error)
}

var _ Leases = (*Control)(nil)

// LeaseRequest is what CreateLease makes. Zero fields mean DefaultTTL and StopSessions.
type LeaseRequest struct {
	Key      string
	TTL      time.Duration
	OnExpiry string
}

// Lease is an owner as clients see it.
type Lease struct {
	ID, Project    string
	TTL            time.Duration
	OnExpiry       string
	Ending         string // empty while it lives
	Created, Ended time.Time
	Sessions       int // that have not ended
}

// owner is a lease that lives, or is just ending.
type owner struct {
	store.Lease               // as it was made
	turn        turn          // held while it is ended
	ending      string        // guarded by Control.mu
	beat        time.Duration // last sign of life, since Control.began; guarded by Control.mu
	timer       *time.Timer   // guarded by Control.mu
}

// CreateLease implements Leases.
func (c *Control) CreateLease(ctx context.Context, project string, req LeaseRequest) (*Lease, error) {
	def(&req.TTL, DefaultTTL)
	def(&req.OnExpiry, StopSessions)
	if c.ctx.Err() != nil {
		return nil, closing()
	}
	if req.Key != "" {
		known, err := c.store.LeaseByKey(ctx, project, req.Key)
		if err == nil {
			return c.sameLease(known, req)
		}
		if !errors.Is(err, errdefs.ErrNotFound) {
			return nil, err
		}
	}
	id, at := c.ids.next(c.cfg.Now())
	l := store.Lease{ID: "l" + id[1:], Project: project, Key: req.Key, TTL: req.TTL, OnExpiry: req.OnExpiry, Created: at}
	o := c.own(l) // before it is stored: whoever finds its key finds it too
	err := c.store.AddLease(ctx, l)
	if err == nil {
		return c.showLease(&o.Lease), nil
	}
	c.disown(o)
	if errors.Is(err, store.ErrLeaseTaken) {
		if known, err := c.store.LeaseByKey(ctx, project, req.Key); err == nil {
			return c.sameLease(known, req)
		}
	}
	return nil, err
}

func (c *Control) sameLease(known *store.Lease, req LeaseRequest) (*Lease, error) {
	if known.TTL != req.TTL || known.OnExpiry != req.OnExpiry {
		return nil, errdefs.Userf(errdefs.IdempotencyClash, "lease key "+req.Key, "use a new key for a new lease", "it was used with another ttl or on_expiry")
	}
	if known.Ending != "" {
		return nil, leaseOver(known)
	}
	return c.showLease(known), nil
}

// RenewLease implements Leases.
func (c *Control) RenewLease(ctx context.Context, project, id string) (revived bool, err error) {
	for {
		o := c.findOwner(project, id)
		if o == nil {
			return c.revive(ctx, project, id)
		}
		c.mu.Lock()
		alive := o.ending == ""
		if alive {
			o.beat = c.sinceBegan()
		}
		c.mu.Unlock()
		if alive {
			return false, nil
		}
		if err := o.turn.take(ctx); err != nil { // whoever ends it is done then
			return false, err
		}
		c.mu.Lock()
		stuck := c.owners[id] == o && o.ending != ""
		c.mu.Unlock()
		o.turn.give()
		if stuck {
			return false, errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "lease "+id, "its end could not be written yet")
		}
	}
}

// revive makes a lease live again whose sessions wait, suspended, for their owner.
func (c *Control) revive(ctx context.Context, project, id string) (revived bool, err error) {
	if err := c.reviving.take(ctx); err != nil {
		return false, err
	}
	defer c.reviving.give()
	if c.findOwner(project, id) != nil {
		return false, nil // another call was faster
	}
	known, err := c.storedLease(ctx, project, id)
	if err != nil {
		return false, err
	}
	if !revivable(known) {
		return false, leaseOver(known)
	}
	if err := c.store.EndLease(ctx, id, "", time.Time{}); err != nil {
		return false, err
	}
	known.Ending, known.Ended = "", time.Time{}
	c.own(*known)
	c.log.Info("a lease lives again", "lease", id)
	return true, nil
}

// ReleaseLease implements Leases.
func (c *Control) ReleaseLease(ctx context.Context, project, id string, keep bool) (int, error) {
	lives, err := c.release(ctx, project, id, keep)
	if err != nil {
		return 0, err
	}
	if !keep {
		for _, l := range lives {
			if _, err := c.waitFor(ctx, l, session.Completed); err != nil {
				return len(lives), err
			}
		}
	}
	return len(lives), nil
}

// release ends a lease, and begins to stop its sessions, which it gives, unless they are kept.
//
// When the end cannot be written, a lease whose sessions are kept lives on as if nothing had been
// asked. One whose sessions are stopped is brought to its end all the same: the stops have begun.
func (c *Control) release(ctx context.Context, project, id string, keep bool) ([]*live, error) {
	known, o, unlock, err := c.holdLease(ctx, project, id)
	if err != nil {
		return nil, err
	}
	defer func() { unlock() }()
	if o != nil {
		c.markEnding(o, leaseReleased)
	}
	lives := c.owned(id)
	if !keep {
		for _, l := range lives {
			c.conclude(l, session.Stop{Reason: "its owner released it"})
		}
	}
	if o == nil && !revivable(known) {
		return lives, nil
	}
	// Begun, it is brought to its end; the stops above are durable with it.
	err = c.store.EndLease(context.WithoutCancel(ctx), id, leaseReleased, c.cfg.Now())
	switch {
	case err == nil && o != nil:
		c.disown(o)
	case err != nil && o != nil && keep:
		c.markAlive(o)
	case err != nil && o != nil:
		begun := unlock
		if c.tasks.spawn(func() { defer begun(); c.endOwner(o, leaseReleased) }) {
			unlock = func() {}
		}
	}
	return lives, err
}

// holdLease is anyLease for who changes whether it lives: nobody else does until unlock.
func (c *Control) holdLease(ctx context.Context, project, id string) (known *store.Lease, o *owner, unlock func(), err error) {
	for {
		o = c.findOwner(project, id)
		t := c.reviving
		if o != nil {
			t = o.turn
		}
		if err := t.take(ctx); err != nil {
			return nil, nil, nil, err
		}
		if c.findOwner(project, id) != o { // it ended or was revived meanwhile
			t.give()
			continue
		}
		if o != nil {
			return &o.Lease, o, t.give, nil
		}
		if known, err = c.storedLease(ctx, project, id); err != nil {
			t.give()
			return nil, nil, nil, err
		}
		return known, nil, t.give, nil
	}
}

// revivable tells whether the lease expired and its sessions wait for a sign of life.
func revivable(l *store.Lease) bool {
	return l.Ending == leaseExpired && l.OnExpiry == SuspendSessions
}

// GetLease implements Leases.
func (c *Control) GetLease(ctx context.Context, project, id string) (*Lease, error) {
	known, _, err := c.anyLease(ctx, project, id)
	if err != nil {
		return nil, err
	}
	return c.showLease(known), nil
}

// anyLease gives a project's lease; o is nil for one that has ended.
func (c *Control) anyLease(ctx context.Context, project, id string) (*store.Lease, *owner, error) {
	if o := c.findOwner(project, id); o != nil {
		return &o.Lease, o, nil
	}
	known, err := c.storedLease(ctx, project, id)
	return known, nil, err
}

func (c *Control) storedLease(ctx context.Context, project, id string) (*store.Lease, error) {
	known, err := c.store.Lease(ctx, id)
	if errors.Is(err, errdefs.ErrNotFound) || err == nil && known.Project != project {
		return nil, errdefs.Userf(errdefs.NotFound, "lease "+id, "make a new one", "there is no such lease")
	}
	return known, err
}

func (c *Control) showLease(l *store.Lease) *Lease {
	return &Lease{
		ID: l.ID, Project: l.Project, TTL: l.TTL, OnExpiry: l.OnExpiry, Ending: l.Ending,
		Created: l.Created, Ended: l.Ended, Sessions: len(c.owned(l.ID)),
	}
}

// leaseOver is the error of whoever wants something of a lease that has ended.
func leaseOver(l *store.Lease) error {
	object := "lease " + l.ID
	if l.Ending == leaseReleased {
		return errdefs.Userf(errdefs.Conflict, object, "make a new one", "it was released")
	}
	return errdefs.Limitf(errdefs.OwnerLost, object, "make a new lease and new sessions; renew it more often than every "+l.TTL.String(),
		"it expired: its owner gave no sign of life for %s", l.TTL)
}
