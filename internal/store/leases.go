package store

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/store/db"
)

// Lease is an owner of sessions as it is stored. Its signs of life are not.
type Lease struct {
	ID, Project string
	// Key of the call that made it, unique within the project; empty for none.
	Key      string
	TTL      time.Duration
	OnExpiry string // "stop" or "suspend"
	// Ending is empty while it lives, else "released" or "expired".
	Ending         string
	Created, Ended time.Time
}

// ErrLeaseTaken says that a lease with this key was made before.
var ErrLeaseTaken = &errdefs.Error{Reason: errdefs.AlreadyExists}

// AddLease stores a lease and returns when it is durable; ErrLeaseTaken if its key is in use.
func (s *Store) AddLease(ctx context.Context, l Lease) error {
	return s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		if _, err := q.GetProject(ctx, l.Project); isNoRows(err) {
			return notFound("project "+l.Project, "make a key of it, which makes it too: `dsec key create --project "+l.Project+"`")
		}
		n, err := q.InsertLease(ctx, db.InsertLeaseParams{
			ID: l.ID, Project: l.Project, Key: l.Key, TtlMs: l.TTL.Milliseconds(), OnExpiry: l.OnExpiry, CreatedAt: micros(l.Created),
		})
		return one(n, err, errdefs.Userf(errdefs.AlreadyExists, "lease key "+l.Key, "use its lease", "it was used before"))
	})
}

// Lease gives one lease; ErrNotFound if it never was, or ended long ago.
func (s *Store) Lease(ctx context.Context, id string) (*Lease, error) {
	return leaseOf(s.q.GetLease(ctx, id))
}

// LeaseByKey gives the lease that was made with key.
func (s *Store) LeaseByKey(ctx context.Context, project, key string) (*Lease, error) {
	return leaseOf(s.q.GetLeaseByKey(ctx, db.GetLeaseByKeyParams{Project: project, Key: key}))
}

func leaseOf(l db.Lease, err error) (*Lease, error) {
	if isNoRows(err) {
		return nil, notFound("lease", "make a new one")
	}
	if err != nil {
		return nil, failed("read", err)
	}
	return lease(l), nil
}

// LiveLeases gives the leases that have not ended.
func (s *Store) LiveLeases(ctx context.Context) ([]*Lease, error) {
	rows, err := s.q.LiveLeases(ctx)
	if err != nil {
		return nil, failed("read", err)
	}
	out := make([]*Lease, len(rows))
	for i, l := range rows {
		out[i] = lease(l)
	}
	return out, nil
}

// EndLease records how a lease ended, and returns when that and everything handed over before is
// durable. Without an ending it makes the lease live again.
func (s *Store) EndLease(ctx context.Context, id, ending string, at time.Time) error {
	if ending == "" {
		at = time.Time{}
	}
	return s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		n, err := q.EndLease(ctx, db.EndLeaseParams{ID: id, Ending: ending, EndedAt: micros(at)})
		return one(n, err, notFound("lease "+id, "make a new one"))
	})
}

// ExpireLeases forgets leases that ended before and have no sessions on record.
func (s *Store) ExpireLeases(ctx context.Context, before time.Time) (n int64, err error) {
	err = s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		n, err = q.ExpireLeases(ctx, micros(before))
		return err
	})
	return n, err
}

func lease(l db.Lease) *Lease {
	return &Lease{
		ID: l.ID, Project: l.Project, Key: l.Key, TTL: time.Duration(l.TtlMs) * time.Millisecond, OnExpiry: l.OnExpiry,
		Ending: l.Ending, Created: instant(l.CreatedAt), Ended: instant(l.EndedAt),
	}
}
