package dsec

import (
	"context"
	"iter"
	"sync"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// Session is a handle on one session. It is safe for concurrent use.
type Session struct {
	c  *Client
	id string

	mu   sync.Mutex
	info *Info
}

// Session gives a handle on a session without asking the server.
func (c *Client) Session(id string) *Session { return &Session{c: c, id: id} }

// ID is the session's public id.
func (s *Session) ID() string { return s.id }

// Info is the session as it was last heard of; nil before the first answer.
func (s *Session) Info() *Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info
}

func (s *Session) heard(i *Info) *Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i != nil {
		s.info = i
	}
	return i
}

// Get asks for the session as it is now.
func (s *Session) Get(ctx context.Context) (*Info, error) {
	r, err := call(ctx, s.c, true, s.c.Sessions.Get, &dsecv1.GetRequest{SessionId: s.id})
	if err != nil {
		return nil, err
	}
	return s.heard(r.GetSession()), nil
}

// Wait answers when the session is in, or past, one of the phases; none: RUNNING.
func (s *Session) Wait(ctx context.Context, until ...string) (*Info, error) {
	r, err := call(ctx, s.c, true, s.c.Sessions.Wait, &dsecv1.WaitRequest{SessionId: s.id, Until: until})
	if err != nil {
		return nil, err
	}
	return s.heard(r.GetSession()), nil
}

// Inspect gives the session with its box's live figures.
func (s *Session) Inspect(ctx context.Context) (*Inspection, error) {
	return call(ctx, s.c, true, s.c.Sessions.Inspect, &dsecv1.InspectRequest{SessionId: s.id})
}

// Heartbeat says that the session's owner lives.
func (s *Session) Heartbeat(ctx context.Context) error {
	_, err := call(ctx, s.c, true, s.c.Sessions.Heartbeat, &dsecv1.HeartbeatRequest{SessionId: s.id})
	return err
}

// Stop ends the session and returns when nothing of its box is left. Idempotent.
func (s *Session) Stop(ctx context.Context, reason string) error {
	return s.one(s.c.Stop(ctx, ByIDs(s.id), reason))
}

// Suspend freezes the session's processes. Idempotent.
func (s *Session) Suspend(ctx context.Context) error { return s.one(s.c.Suspend(ctx, ByIDs(s.id))) }

// Resume thaws them. Idempotent.
func (s *Session) Resume(ctx context.Context) error { return s.one(s.c.Resume(ctx, ByIDs(s.id))) }

func (s *Session) one(rs []*Outcome, err error) error {
	for _, r := range rs {
		s.heard(r.GetSession())
		if e := FromWire(r.GetError()); e != nil && err == nil {
			err = e
		}
	}
	return err
}

// ByIDs selects sessions by id; ByJob, ByLabels and ByKey by what their create said.
func ByIDs(ids ...string) *Selector { return &Selector{Ids: ids} }

// ByJob selects the sessions of a job.
func ByJob(job string) *Selector { return &Selector{Job: job} }

// ByLabels selects the sessions that have all of the labels.
func ByLabels(labels map[string]string) *Selector { return &Selector{Labels: labels} }

// ByKey selects the sessions of the create with that idempotency key.
func ByKey(key string) *Selector { return &Selector{IdempotencyKey: key} }

// Stop ends the selected sessions; each one's outcome is in the answer.
func (c *Client) Stop(ctx context.Context, sel *Selector, reason string) ([]*Outcome, error) {
	r, err := call(ctx, c, true, c.Sessions.Stop, &dsecv1.StopRequest{Selector: sel, Reason: reason})
	return r.GetResults(), err
}

// Suspend freezes the selected sessions.
func (c *Client) Suspend(ctx context.Context, sel *Selector) ([]*Outcome, error) {
	r, err := call(ctx, c, true, c.Sessions.Suspend, &dsecv1.SuspendRequest{Selector: sel})
	return r.GetResults(), err
}

// Resume thaws the selected sessions.
func (c *Client) Resume(ctx context.Context, sel *Selector) ([]*Outcome, error) {
	r, err := call(ctx, c, true, c.Sessions.Resume, &dsecv1.ResumeRequest{Selector: sel})
	return r.GetResults(), err
}

// ListOptions filter List. The zero value lists all sessions, oldest first.
type ListOptions struct {
	Phases      []string
	Job         string
	Labels      map[string]string
	Lease       string // Lease.ID
	NewestFirst bool
	PageSize    int // of one request
}

// List gives the project's sessions, page by page as they are consumed. It ends
// after the first error.
func (c *Client) List(ctx context.Context, o ListOptions) iter.Seq2[*Info, error] {
	return func(yield func(*Info, error) bool) {
		q := &dsecv1.ListRequest{Phases: o.Phases, Job: o.Job, Labels: o.Labels, LeaseId: o.Lease, NewestFirst: o.NewestFirst, PageSize: int32(o.PageSize)}
		for {
			r, err := call(ctx, c, true, c.Sessions.List, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range r.GetSessions() {
				if !yield(s, nil) {
					return
				}
			}
			if q.PageToken = r.GetNextPageToken(); q.PageToken == "" {
				return
			}
		}
	}
}

// KeepAlive sends heartbeats every interval until ctx ends, and returns the
// error of the last one that the server refused.
func (s *Session) KeepAlive(ctx context.Context, interval time.Duration) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			if err := s.Heartbeat(ctx); err != nil && ctx.Err() == nil && !repeatable(err, true) {
				return err
			}
		}
	}
}
