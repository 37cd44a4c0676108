package store

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/store/db"
)

// Project is a tenant.
type Project struct {
	ID      string
	MaxLive int64 // sessions that have not ended; 0: no bound
	Live    int64
	Created time.Time
}

// EnsureProject makes a project unless it exists, and tells whether it did.
func (s *Store) EnsureProject(ctx context.Context, p Project) (made bool, err error) {
	err = s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		n, err := q.InsertProject(ctx, db.InsertProjectParams{ID: p.ID, MaxLive: p.MaxLive, CreatedAt: micros(p.Created)})
		made = n > 0
		return err
	})
	return made, err
}

// Project gives one project.
func (s *Store) Project(ctx context.Context, id string) (*Project, error) {
	p, err := s.q.GetProject(ctx, id)
	if isNoRows(err) {
		return nil, notFound("project "+id, "list the projects to see which there are")
	}
	if err != nil {
		return nil, failed("read", err)
	}
	return project(p), nil
}

// Projects gives all projects by name.
func (s *Store) Projects(ctx context.Context) ([]*Project, error) {
	ps, err := s.q.ListProjects(ctx)
	if err != nil {
		return nil, failed("read", err)
	}
	out := make([]*Project, len(ps))
	for i, p := range ps {
		out[i] = project(p)
	}
	return out, nil
}

// SetQuota changes how many live sessions a project may have; it ends none.
func (s *Store) SetQuota(ctx context.Context, id string, maxLive int64) error {
	return s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		n, err := q.SetProjectQuota(ctx, db.SetProjectQuotaParams{ID: id, MaxLive: maxLive})
		return one(n, err, notFound("project "+id, "list the projects to see which there are"))
	})
}

func project(p db.Project) *Project {
	return &Project{ID: p.ID, MaxLive: p.MaxLive, Live: p.Live, Created: instant(p.CreatedAt)}
}

// APIKey is a key without the key: only its hash is kept.
type APIKey struct {
	ID, Project, Name string
	Hash              []byte // SHA-256
	Hint              string // some of its characters, to tell keys apart
	Created, Revoked  time.Time
}

// AddKey stores a key. The project must exist.
func (s *Store) AddKey(ctx context.Context, k APIKey) error {
	return s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		if _, err := q.GetProject(ctx, k.Project); isNoRows(err) {
			return notFound("project "+k.Project, "make the project first")
		}
		return q.InsertKey(ctx, db.InsertKeyParams{ID: k.ID, Project: k.Project, Name: k.Name, Hash: k.Hash, Hint: k.Hint, CreatedAt: micros(k.Created)})
	})
}

// Keys gives the keys of all projects, oldest first, revoked ones too.
func (s *Store) Keys(ctx context.Context) ([]*APIKey, error) {
	ks, err := s.q.ListKeys(ctx)
	if err != nil {
		return nil, failed("read", err)
	}
	out := make([]*APIKey, len(ks))
	for i, k := range ks {
		out[i] = apiKey(k)
	}
	return out, nil
}

// RevokeKey ends a key for good. Revoking it again changes nothing.
func (s *Store) RevokeKey(ctx context.Context, id string, now time.Time) (k *APIKey, err error) {
	err = s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		if _, err := q.RevokeKey(ctx, db.RevokeKeyParams{ID: id, RevokedAt: micros(now)}); err != nil {
			return err
		}
		row, err := q.GetKey(ctx, id)
		if isNoRows(err) {
			return notFound("API key "+id, "list the keys to see which there are")
		}
		k = apiKey(row)
		return err
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

func apiKey(k db.ApiKey) *APIKey {
	return &APIKey{ID: k.ID, Project: k.Project, Name: k.Name, Hash: k.Hash, Hint: k.Hint, Created: instant(k.CreatedAt), Revoked: instant(k.RevokedAt)}
}
