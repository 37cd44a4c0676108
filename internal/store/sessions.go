package store

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store/db"
)

// Insert is one transaction that makes sessions of one project.
type Insert struct {
	Project string
	// Key is recorded with the first sessions of a request that has one.
	Key *Key
	// MaxLive bounds the sessions of all projects that have not ended; 0 means no bound.
	MaxLive  int64
	Sessions []*Session
}

// Insert stores sessions, quota checked, and returns when they are durable.
// refused has an entry for each session, nil for those that were stored. The error is
// about all of them: then nothing was stored. It is ErrKeyTaken when the
// idempotency key is in use.
func (s *Store) Insert(ctx context.Context, in Insert) (refused []*errdefs.Error, err error) {
	done := make(chan struct{})
	s.InsertBehind(ctx, in, func(r []*errdefs.Error, e error) {
		refused, err = r, e
		close(done)
	})
	<-done
	return refused, err
}

// InsertBehind is Insert without the wait: when it returns, the insert has its place before all
// later writes. done is called, on the writer's goroutine, with the outcome; it must
// be quick and must not write.
func (s *Store) InsertBehind(ctx context.Context, in Insert, done func(refused []*errdefs.Error, err error)) {
	var refused []*errdefs.Error
	insert := func(ctx context.Context, q *db.Queries) error {
		if in.Key != nil {
			if err := takeKey(ctx, q, in.Project, in.Key); err != nil {
				return err
			}
		}
		refused = make([]*errdefs.Error, len(in.Sessions))
		for i, rec := range in.Sessions {
			no, err := insertOne(ctx, q, in, rec)
			if err != nil {
				return err
			}
			refused[i] = no
		}
		return nil
	}
	s.w.behind(item{ctx: ctx, fn: insert, done: func(err error) {
		if err != nil {
			refused = nil
		}
		done(refused, err)
	}})
}

func insertOne(ctx context.Context, q *db.Queries, in Insert, rec *Session) (refused *errdefs.Error, err error) {
	if in.MaxLive > 0 {
		live, err := q.CountLive(ctx)
		if err != nil {
			return nil, err
		}
		if live >= in.MaxLive {
			e := errdefs.Limitf(errdefs.QueueFull, "session "+rec.ID, "send it again later, or raise queue_length or max_active_sessions",
				"the platform has %d live sessions and takes %d", live, in.MaxLive)
			e.Scope, e.Retryable = errdefs.ScopePlatform, true
			return e, nil
		}
	}
	if !rec.Phase.Terminal() {
		n, err := q.TakeQuota(ctx, in.Project)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return quotaError(ctx, q, in.Project)
		}
	}
	p, err := insertParams(rec)
	if err != nil {
		return nil, err
	}
	if err := q.InsertSession(ctx, p); err != nil {
		return nil, err
	}
	for name, value := range rec.Labels {
		if err := q.InsertLabel(ctx, db.InsertLabelParams{Project: rec.Project, Name: name, Value: value, Session: rec.ID}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func quotaError(ctx context.Context, q *db.Queries, project string) (*errdefs.Error, error) {
	p, err := q.GetProject(ctx, project)
	if isNoRows(err) {
		return nil, notFound("project "+project, "make a key of it, which makes it too: `dsec key create --project "+project+"`")
	}
	if err != nil {
		return nil, err
	}
	e := errdefs.Limitf(errdefs.QuotaExceeded, "project "+project, "stop some of its sessions, or have its quota raised",
		"it has %d live sessions of %d", p.Live, p.MaxLive)
	e.Scope, e.Retryable = errdefs.ScopePlatform, true
	return e, nil
}

// Update stores a newer state of a session whose stored version is from, and
// returns when it is durable. ErrConflict when the stored version is another.
func (s *Store) Update(ctx context.Context, project string, r session.Row, from int64) error {
	return s.w.do(ctx, update(project, r, from))
}

// UpdateBehind is Update without the wait and without a sync of its own: it
// survives the process at once, and the machine with the next synced write. done is called, on the
// writer's goroutine, with the outcome. It must be quick and must not write.
func (s *Store) UpdateBehind(project string, r session.Row, from int64, done func(error)) {
	s.w.behind(item{ctx: context.Background(), fn: update(project, r, from), lazy: true, done: done})
}

func update(project string, r session.Row, from int64) work {
	return func(ctx context.Context, q *db.Queries) error {
		p, err := updateParams(r, from)
		if err != nil {
			return err
		}
		n, err := q.UpdateSession(ctx, p)
		if err := one(n, err, errdefs.Userf(errdefs.Conflict, "session "+r.ID, "read it again", "its stored version is not %d", from)); err != nil {
			return err
		}
		if r.Phase.Terminal() { // the only update that can: an ended session never changes
			n, err := q.GiveQuota(ctx, project)
			return one(n, err, notFound("project "+project, "make the project first"))
		}
		return nil
	}
}

// Get gives one session; ErrNotFound if it never was.
func (s *Store) Get(ctx context.Context, id string) (*Session, error) {
	row, err := s.q.GetSession(ctx, id)
	if isNoRows(err) {
		return nil, notFound("session "+id, "list the sessions to see which there are")
	}
	if err != nil {
		return nil, failed("read", err)
	}
	rec, err := fromRow(&row)
	return rec, failed("read", err)
}

// Live gives all sessions that have not ended, oldest first.
func (s *Store) Live(ctx context.Context) ([]*Session, error) {
	rows, err := s.q.LiveSessions(ctx)
	if err != nil {
		return nil, failed("read", err)
	}
	return fromRows(rows)
}

// ByRequest gives the sessions that one create call made, in their order.
func (s *Store) ByRequest(ctx context.Context, request string) ([]*Session, error) {
	rows, err := s.q.SessionsByRequest(ctx, request)
	if err != nil {
		return nil, failed("read", err)
	}
	return fromRows(rows)
}

// Delete forgets a session that has ended; it does nothing for one that does not exist.
func (s *Store) Delete(ctx context.Context, id string) error {
	return s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		if err := q.DeleteLabels(ctx, id); err != nil {
			return err
		}
		n, err := q.DeleteEnded(ctx, id)
		if err != nil || n > 0 {
			return err
		}
		if _, err := q.GetSession(ctx, id); isNoRows(err) {
			return nil
		}
		return errdefs.Userf(errdefs.Conflict, "session "+id, "stop it first", "it has not ended")
	})
}

// ExpireSessions forgets at most most sessions that ended before, oldest first, and tells how many.
func (s *Store) ExpireSessions(ctx context.Context, before time.Time, most int) (n int64, err error) {
	err = s.w.do(ctx, func(ctx context.Context, q *db.Queries) error {
		if err := q.ExpireLabels(ctx, db.ExpireLabelsParams{Before: micros(before), Most: int32(most)}); err != nil {
			return err
		}
		n, err = q.ExpireSessions(ctx, db.ExpireSessionsParams{Before: micros(before), Most: int32(most)})
		return err
	})
	return n, err
}
