package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store"
)

// Create implements API.
func (c *Control) Create(ctx context.Context, project string, req CreateRequest) ([]CreateResult, error) {
	if err := c.check(&req); err != nil {
		return nil, err
	}
	if c.ctx.Err() != nil {
		return nil, closing()
	}
	if req.Key == "" {
		r := newRequest(c.ctx, project, &req, c.newRequestID(), c.cfg.Now())
		if !c.tasks.spawn(func() { c.make(r, &req) }) {
			return nil, closing()
		}
		res, err := c.collect(ctx, r, &req)
		if err == nil && req.OnItem == nil && ctx.Err() != nil { // it went away beside the last answer
			res, err = nil, errdefs.From(ctx.Err())
		}
		if err != nil {
			c.revoke(r)
		}
		return res, err
	}
	r, err := c.keyed(ctx, project, &req)
	if err != nil {
		return nil, err
	}
	return c.collect(ctx, r, &req)
}

func (c *Control) check(req *CreateRequest) error {
	if req.Count == 0 {
		req.Count = 1
	}
	if req.Count < 0 || req.Count > MaxCount {
		return errdefs.Userf(errdefs.InvalidArgument, "field count", fmt.Sprintf("ask for 1 to %d", MaxCount), "%d sessions cannot be asked for at once", req.Count)
	}
	if req.Template == "" {
		req.Template = "base"
	}
	if req.CodeDir == "" {
		req.CodeDir = "/workspace"
	}
	if err := checkDeadline(req.Lifetime, req.AtDeadline); err != nil {
		return err
	}
	if req.Lifetime > 0 {
		def(&req.AtDeadline, string(session.ActStop))
	}
	if err := c.checkPriority(req.Priority); err != nil {
		return err
	}
	return c.checkMounts(&req.Spec)
}

// checkPriority wants a level that the configuration knows: a misspelt one would never act.
func (c *Control) checkPriority(name string) error {
	levels := c.cfg.Scheduler.PriorityLevels
	if name == "" || slices.ContainsFunc(levels, func(l spec.PriorityLevel) bool { return l.Name == name }) {
		return nil
	}
	remedy := "leave it out: the server's configuration has no priority_levels"
	if len(levels) > 0 {
		names := make([]string, len(levels))
		for i, l := range levels {
			names[i] = l.Name
		}
		remedy = "use one of " + strings.Join(names, ", ")
	}
	return errdefs.Userf(errdefs.InvalidArgument, "field priority", remedy, "no level is called %q", name)
}

// keyed gives the request that a key stands for: one in flight, one of
// earlier whose sessions are known, or a new one.
func (c *Control) keyed(ctx context.Context, project string, req *CreateRequest) (*request, error) {
	for {
		r, answered := c.inFlight(project, req.Key)
		if r != nil {
			return r, sameRequest(r.digest, req)
		}
		known, err := c.store.LookupKey(ctx, project, req.Key, c.cfg.Now().Add(-keyWindow))
		fresh := errors.Is(err, errdefs.ErrNotFound)
		if err != nil && !fresh {
			return nil, err
		}
		if fresh {
			r = newRequest(c.ctx, project, req, c.newRequestID(), c.cfg.Now())
		} else {
			if err := sameRequest(known.Digest, req); err != nil {
				return nil, err
			}
			r = newRequest(c.ctx, project, req, known.Request, known.Created)
			r.recorded = true
		}
		if !c.enter(r, answered) {
			continue // somebody was faster
		}
		if err := c.recall(r); err != nil {
			settleAll(r.items, err) // others may have joined
			close(r.done)
			c.leave(r)
			return nil, err
		}
		if !c.tasks.spawn(func() { c.make(r, req) }) {
			c.leave(r)
			return nil, closing()
		}
		if fresh {
			return r, nil
		}
		c.counters.IdempotentHits.Add(1)
		return r, nil
	}
}

func sameRequest(digest string, req *CreateRequest) error {
	if digest == req.Digest {
		return nil
	}
	return errdefs.Userf(errdefs.IdempotencyClash, "idempotency key "+req.Key, "use a new key for a new request",
		"it was used with another request in the last 24 hours")
}

// recall ties the sessions of an earlier call to the request's items. Items that
// were refused then, or that a crash kept from being made, are made now.
func (c *Control) recall(r *request) error {
	if !r.recorded {
		return nil
	}
	if err := c.store.Flush(c.ctx); err != nil {
		return err
	}
	recs, err := c.store.ByRequest(c.ctx, r.id)
	if err != nil {
		return err
	}
	for _, rec := range recs {
		if rec.Ordinal < 0 || rec.Ordinal >= len(r.items) {
			continue
		}
		it := r.items[rec.Ordinal]
		if l := c.find(rec.ID); l != nil {
			it.accept(l)
			l.await(it)
			continue
		}
		if !rec.Phase.Terminal() { // it ended since it was read
			if rec, err = c.store.Get(c.ctx, rec.ID); err != nil {
				return err
			}
		}
		it.settle(CreateResult{Session: view(rec, rec.Row), Err: rec.Error})
	}
	return nil
}

// inFlight gives the request of a key, if there is one, and how many there have been before.
func (c *Control) inFlight(project, key string) (r *request, answered uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[requestKey{project, key}], c.answered
}

// enter makes r the request of its key, unless there is one, or one may have come and
// gone since answered: what the store then said of the key is old.
func (c *Control) enter(r *request, answered uint64) bool {
	k := requestKey{r.project, r.key}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[k] != nil || c.answered != answered {
		return false
	}
	c.requests[k] = r
	return true
}

func (c *Control) leave(r *request) {
	r.cancel()
	if r.key == "" {
		return
	}
	k := requestKey{r.project, r.key}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests[k] == r {
		delete(c.requests, k)
		c.answered++
	}
}

// collect answers a caller as the items are answered. An error is the caller's end, or the server's.
func (c *Control) collect(ctx context.Context, r *request, req *CreateRequest) ([]CreateResult, error) {
	out := make([]CreateResult, len(r.items))
	for n := 0; n < len(out); {
		fresh, changed := r.after(n, req.NoWait)
		for _, i := range fresh {
			out[i] = r.answer(c, i)
			if req.OnItem != nil {
				req.OnItem(i, out[i])
			}
		}
		if n += len(fresh); n == len(out) {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, r.late(ctx.Err())
		case <-c.ctx.Done():
			return nil, closing()
		}
	}
	return out, nil
}

// revoke undoes a create whose caller went away, and returns when nothing is left of it.
func (c *Control) revoke(r *request) {
	r.cancel()
	if c.ctx.Err() != nil {
		return
	}
	c.counters.Revoked.Add(1)
	select {
	case <-r.done:
	case <-c.ctx.Done():
		return
	}
	c.endAll(c.ctx, r.lives(), "the create was cancelled by its caller", true)
}

func (c *Control) newRequestID() string {
	id, _ := c.ids.next(c.cfg.Now())
	return "r" + id[1:]
}

// record is the stored form of the i-th session of a request.
func (c *Control) record(r *request, req *CreateRequest, i int, template string) store.Session {
	rec := store.Session{
		Project: r.project, Job: req.Job, Template: template, Priority: req.Priority,
		Request: r.id, Ordinal: i, Payload: len(req.Secrets) > 0 || len(req.Code) > 0,
		NoPool: req.NoPool, Detached: req.Key != "" || req.NoWait,
		Spec: req.Spec, Labels: req.Labels, Env: req.Env, Lease: req.Lease,
	}
	return rec
}
