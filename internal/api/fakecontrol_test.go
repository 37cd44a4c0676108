package api_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

// memControl is a control plane in memory, whose boxes are host guests.
type memControl struct {
	dir func() string // a new directory for a guest

	mu       sync.Mutex
	sessions map[string]*memSession
	order    []string
	keys     map[string][]string // project/key → ids
	digests  map[string]string
	last     control.CreateRequest
	creates  int
	block    chan struct{} // when set, creates wait for it or their ctx
	canceled int
}

type memSession struct {
	s     *control.Session
	guest *hostGuest
}

var _ control.API = (*memControl)(nil)

func newMemControl(dir func() string) *memControl {
	return &memControl{dir: dir, sessions: map[string]*memSession{}, keys: map[string][]string{}, digests: map[string]string{}}
}

func (c *memControl) Create(ctx context.Context, project string, req control.CreateRequest) ([]control.CreateResult, error) {
	c.mu.Lock()
	c.last = req
	c.creates++
	block := c.block
	c.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			c.mu.Lock()
			c.canceled++
			c.mu.Unlock()
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := project + "/" + req.Key
	if req.Key != "" && c.digests[k] != "" {
		if c.digests[k] != req.Digest {
			return nil, errdefs.Userf(errdefs.IdempotencyClash, "idempotency key "+req.Key, "use a new key", "it was used with another request")
		}
	} else {
		c.keys[k] = nil
		for range req.Count {
			var entropy [9]byte
			entropy[6], entropy[7] = byte(len(c.order)>>8), byte(len(c.order))
			id := session.NewID(time.Now(), entropy)
			c.sessions[id] = &memSession{s: &control.Session{ID: id, Project: project, Template: "base@1", Phase: "RUNNING", Spec: req.Spec, Env: req.Env, Labels: req.Labels, Job: req.Job, Created: time.Now(), Version: 1}}
			c.order = append(c.order, id)
			c.keys[k] = append(c.keys[k], id)
		}
		c.digests[k] = req.Digest
	}
	var out []control.CreateResult
	for i, id := range c.keys[k] {
		r := control.CreateResult{Session: c.sessions[id].s}
		out = append(out, r)
		if req.OnItem != nil {
			req.OnItem(i, r)
		}
	}
	return out, nil
}

func (c *memControl) find(project, id string) (*memSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.sessions[id]; m != nil && m.s.Project == project {
		return m, nil
	}
	return nil, errdefs.Userf(errdefs.NotFound, "session "+id, "list the sessions of the project", "it does not exist")
}

func (c *memControl) Get(_ context.Context, project, id string) (*control.Session, error) {
	m, err := c.find(project, id)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := *m.s
	return &s, nil
}

func (c *memControl) Wait(ctx context.Context, project, id string, until ...string) (*control.Session, error) {
	for {
		s, err := c.Get(ctx, project, id)
		if err != nil || slices.Contains(until, s.Phase) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func (c *memControl) List(_ context.Context, project string, f control.Filter) ([]*control.Session, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var page []*control.Session
	for _, id := range c.order {
		s := c.sessions[id].s
		if s.Project != project || id <= f.Page || f.Job != "" && f.Job != s.Job || len(f.Phases) > 0 && !slices.Contains(f.Phases, s.Phase) {
			continue
		}
		if f.Limit > 0 && len(page) == f.Limit {
			return page, page[len(page)-1].ID, nil
		}
		page = append(page, s)
	}
	return page, "", nil
}

func (c *memControl) set(project string, sel control.Selector, phase string) ([]control.StopResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ids := sel.IDs
	for _, id := range c.order {
		s := c.sessions[id].s
		if s.Project == project && (sel.All || sel.Job != "" && s.Job == sel.Job) {
			ids = append(ids, id)
		}
	}
	var out []control.StopResult
	for _, id := range ids {
		r := control.StopResult{ID: id}
		if m := c.sessions[id]; m == nil || m.s.Project != project {
			r.Err = errdefs.Userf(errdefs.NotFound, "session "+id, "list the sessions of the project", "it does not exist")
		} else {
			s := *m.s
			s.Phase = phase
			m.s, r.Session = &s, &s
		}
		out = append(out, r)
	}
	return out, nil
}

func (c *memControl) Stop(_ context.Context, project string, sel control.Selector, _ string) ([]control.StopResult, error) {
	return c.set(project, sel, "COMPLETED")
}

func (c *memControl) Suspend(_ context.Context, project string, sel control.Selector) ([]control.StopResult, error) {
	return c.set(project, sel, "SUSPENDED")
}

func (c *memControl) Resume(_ context.Context, project string, sel control.Selector) ([]control.StopResult, error) {
	return c.set(project, sel, "RUNNING")
}

func (c *memControl) Guest(_ context.Context, project, id string) (guestclient.API, func(), error) {
	m, err := c.find(project, id)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.s.Phase == "COMPLETED" {
		return nil, nil, errdefs.Userf(errdefs.BoxGone, "session "+id, "create another one", "it has ended")
	}
	if m.guest == nil {
		m.guest = newHostGuest(c.dir())
	}
	return m.guest, func() {}, nil
}

func (c *memControl) Inspect(ctx context.Context, project, id string) (*control.Inspect, error) {
	s, err := c.Get(ctx, project, id)
	if err != nil {
		return nil, err
	}
	return &control.Inspect{Session: s, Box: &node.Inspect{Runtime: "fake", Usage: runtime.Usage{CPU: 1500 * time.Microsecond}}}, nil
}

func (c *memControl) Heartbeat(_ context.Context, project, id string) error {
	_, err := c.find(project, id)
	return err
}

// memKeys are keys in memory.
type memKeys struct {
	mu sync.Mutex
	m  map[string]control.Key // by secret
}

var _ control.Keys = (*memKeys)(nil)

func (k *memKeys) Lookup(_ context.Context, key string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if got, ok := k.m[key]; ok && got.Revoked.IsZero() {
		return got.Project, nil
	}
	return "", errdefs.Userf(errdefs.Unauthenticated, "key", "x", "no")
}

func (k *memKeys) CreateKey(_ context.Context, project, name string) (control.Key, string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	secret := fmt.Sprintf("e2b_%032x", len(k.m)+1)
	got := control.Key{ID: fmt.Sprint("k", len(k.m)), Project: project, Name: name, Hint: secret[len(secret)-4:], Created: time.Now()}
	k.m[secret] = got
	return got, secret, nil
}

func (k *memKeys) ListKeys(_ context.Context, project string) (out []control.Key, _ error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, got := range k.m {
		if project == "" || got.Project == project {
			out = append(out, got)
		}
	}
	return out, nil
}

func (k *memKeys) RevokeKey(_ context.Context, id string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for secret, got := range k.m {
		if got.ID == id {
			got.Revoked = time.Now()
			k.m[secret] = got
			return nil
		}
	}
	return errdefs.Userf(errdefs.NotFound, "key "+id, "list the keys", "it does not exist")
}

// memTemplates has base, and what Import was given.
type memTemplates struct {
	mu       sync.Mutex
	imported []template.ImportRequest
}

var _ template.Store = (*memTemplates)(nil)

func (*memTemplates) Resolve(context.Context, string) (*template.Template, runtime.Root, func(), error) {
	panic("the gateway resolves no roots")
}

func (*memTemplates) List(context.Context) ([]*template.Template, error) {
	return []*template.Template{{Name: "base", Version: "1", Spec: spec.Sandbox{PidLimit: 77}}}, nil
}

func (t *memTemplates) Get(ctx context.Context, ref string) (*template.Template, error) {
	if ref != "base" {
		return nil, errdefs.Userf(errdefs.NotFound, "template "+ref, "use base", "it does not exist")
	}
	all, err := t.List(ctx)
	return all[0], err
}

func (*memTemplates) Remove(context.Context, string) error { return nil }

func (*memTemplates) EnsureBase(context.Context) (bool, *template.Template, error) {
	return false, nil, nil
}

func (*memTemplates) Verify(context.Context, string) error { return nil }

func (t *memTemplates) Import(_ context.Context, req template.ImportRequest) (*template.Template, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.imported = append(t.imported, req)
	if req.Progress != nil {
		req.Progress(template.Progress{Stage: "layer 1/1", Done: 1, Total: 2})
	}
	return &template.Template{Name: req.Name, Version: "abc"}, nil
}
