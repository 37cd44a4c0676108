package control

import (
	"context"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/template"
)

// root is a template that live sessions use: while users is above zero it cannot be removed.
type root struct {
	name     string // name@version
	template *template.Template
	runtime  runtime.Root
	release  func()
	users    int // guarded by Control.mu
}

// takeRoot resolves ref for one user more.
func (c *Control) takeRoot(ctx context.Context, ref string) (*root, error) {
	t, rt, release, err := c.cfg.Templates.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	name := t.Name + "@" + t.Version
	c.mu.Lock()
	r := c.roots[name]
	if r == nil {
		r = &root{name: name, template: t, runtime: rt, release: release}
		c.roots[name] = r
		release = func() {}
	}
	r.users++
	c.mu.Unlock()
	release() // one hold a template is enough
	return r, nil
}

// shareRoot adds a user to a root that is held.
func (c *Control) shareRoot(r *root) *root {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.users++
	return r
}

func (c *Control) dropRoot(r *root) {
	if r == nil {
		return
	}
	c.mu.Lock()
	r.users--
	last := r.users == 0
	if last {
		delete(c.roots, r.name)
	}
	c.mu.Unlock()
	if last {
		r.release()
	}
}
