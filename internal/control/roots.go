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
	c.mu.Lock()
	if r := c.roots[ref]; r != nil { // an exact version means the same for ever
		r.users++
		c.mu.Unlock()
		return r, nil
	}
	c.mu.Unlock()
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
