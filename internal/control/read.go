package control

import (
	"context"
	"errors"
	"slices"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

func (c *Control) find(id string) *live {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[id]
}

// lookup gives a project's session: live, or as it ended.
func (c *Control) lookup(ctx context.Context, project, id string) (*live, *Session, error) {
	if l := c.find(id); l != nil {
		if l.rec.Project != project {
			return nil, nil, unknown(id)
		}
		return l, nil, nil
	}
	if !session.ValidID(id) {
		return nil, nil, unknown(id)
	}
	rec, err := c.store.Get(ctx, id)
	if errors.Is(err, errdefs.ErrNotFound) || err == nil && rec.Project != project {
		return nil, nil, unknown(id)
	}
	if err != nil {
		return nil, nil, err
	}
	return nil, view(rec, rec.Row), nil
}

func unknown(id string) error {
	return errdefs.Userf(errdefs.NotFound, "session "+id, "list the sessions to see which there are", "there is no such session")
}

// Get implements API.
func (c *Control) Get(ctx context.Context, project, id string) (*Session, error) {
	l, s, err := c.lookup(ctx, project, id)
	if l != nil {
		return c.show(l), nil
	}
	return s, err
}

// Wait implements API. Without until it waits for RUNNING. A session that ends is past every phase.
func (c *Control) Wait(ctx context.Context, project, id string, until ...string) (*Session, error) {
	phases := []session.Phase{session.Running}
	if len(until) > 0 {
		phases = phases[:0]
	}
	for _, u := range until {
		if !session.Phase(u).Valid() {
			return nil, badPhase("until", u)
		}
		phases = append(phases, session.Phase(u))
	}
	l, s, err := c.lookup(ctx, project, id)
	if l == nil {
		return s, err
	}
	if _, err := c.waitFor(ctx, l, phases...); err != nil {
		return c.show(l), err
	}
	return c.show(l), nil
}

// waitFor returns when the session is told to be in, or past, one of phases.
func (c *Control) waitFor(ctx context.Context, l *live, phases ...session.Phase) (session.Row, error) {
	for {
		row, changed := l.look()
		if slices.ContainsFunc(phases, row.Phase.Reached) {
			return row, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return row, errdefs.From(ctx.Err())
		case <-c.ctx.Done():
			return row, closing()
		}
	}
}

func badPhase(field, value string) error {
	return errdefs.Userf(errdefs.InvalidArgument, "field "+field, "use PENDING, SCHEDULED, RUNNING, SUSPENDED, COMPLETED or FAILED", "%q is not a phase", value)
}

// List implements API. What was changed before the call is in the answer.
func (c *Control) List(ctx context.Context, project string, f Filter) (page []*Session, next string, err error) {
	q := store.Filter{Project: project, Job: f.Job, Lease: f.Lease, Labels: f.Labels, Newest: f.Newest, After: f.Page, Limit: f.Limit}
	for _, p := range f.Phases {
		if !session.Phase(p).Valid() {
			return nil, "", badPhase("phases", p)
		}
		q.Phases = append(q.Phases, session.Phase(p))
	}
	if f.Page != "" && !session.ValidID(f.Page) {
		return nil, "", errdefs.Userf(errdefs.InvalidArgument, "field page", "give what the page before returned, or nothing", "%q is not a page", f.Page)
	}
	if q.Limit == 0 {
		q.Limit = defaultPage
	}
	if q.Limit < 0 || q.Limit > maxPage {
		return nil, "", errdefs.Userf(errdefs.InvalidArgument, "field limit", "ask for 1 to 1000", "a page of %d cannot be had", f.Limit)
	}
	if err := c.store.Flush(ctx); err != nil {
		return nil, "", err
	}
	limit := q.Limit
	q.Limit++ // one more tells whether there is a next page
	recs, err := c.store.List(ctx, q)
	if err != nil {
		return nil, "", err
	}
	if len(recs) > limit {
		recs = recs[:limit]
		next = recs[limit-1].ID
	}
	page = make([]*Session, len(recs))
	for i, rec := range recs {
		if l := c.find(rec.ID); l != nil {
			page[i] = c.show(l) // with its place in the line
		} else {
			page[i] = view(rec, rec.Row)
		}
	}
	return page, next, nil
}

// Inspect implements API. Box is nil for a session that has none.
func (c *Control) Inspect(ctx context.Context, project, id string) (*Inspect, error) {
	l, s, err := c.lookup(ctx, project, id)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return &Inspect{Session: s}, nil
	}
	out := &Inspect{Session: c.show(l)}
	if out.Session.Box == "" {
		return out, nil
	}
	box, err := c.node.Inspect(ctx, id)
	switch {
	case err == nil:
		out.Box = box
	case !l.current().Ending():
		return nil, err
	}
	return out, nil
}
