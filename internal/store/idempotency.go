package store

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/store/db"
)

// ErrKeyTaken says that an idempotency key was recorded before.
var ErrKeyTaken = &errdefs.Error{Reason: errdefs.AlreadyExists}

// Key is an idempotency key and the create call that it stands for.
type Key struct {
	Key, Digest, Request string
	Count                int
	Created              time.Time
	// Window is how long a key stands: an older record of the same key gives way.
	Window time.Duration
}

func takeKey(ctx context.Context, q *db.Queries, project string, k *Key) error {
	if _, err := q.DeleteIdempotencyKey(ctx, db.DeleteIdempotencyKeyParams{Project: project, Key: k.Key, CreatedAt: micros(k.Created.Add(-k.Window))}); err != nil {
		return err
	}
	n, err := q.InsertIdempotencyKey(ctx, db.InsertIdempotencyKeyParams{
		Project: project, Key: k.Key, Digest: k.Digest, Request: k.Request, Count: int32(k.Count), CreatedAt: micros(k.Created),
	})
	return one(n, err, errdefs.Userf(errdefs.AlreadyExists, "idempotency key "+k.Key, "use its sessions", "it was used before"))
}

// LookupKey gives what a key stands for; ErrNotFound if it was never used, or before since.
func (s *Store) LookupKey(ctx context.Context, project, key string, since time.Time) (*Key, error) {
	k, err := s.q.GetIdempotencyKey(ctx, db.GetIdempotencyKeyParams{Project: project, Key: key})
	if isNoRows(err) || err == nil && k.CreatedAt <= micros(since) {
		return nil, notFound("idempotency key "+key, "create the sessions first; a key is kept for 24 hours")
	}
	if err != nil {
		return nil, failed("read", err)
	}
	return &Key{Key: k.Key, Digest: k.Digest, Request: k.Request, Count: int(k.Count), Created: instant(k.CreatedAt)}, nil
}

// ExpireKeys forgets idempotency keys recorded before.
func (s *Store) ExpireKeys(ctx context.Context, before time.Time) (n int64, err error) {
	err = s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		n, err = q.ExpireIdempotencyKeys(ctx, micros(before))
		return err
	})
	return n, err
}
