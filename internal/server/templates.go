package server

import (
	"context"

	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/template"
)

// pooledTemplates is the template store of a node with a pool: a removal ends the
// pool's boxes of the template first.
type pooledTemplates struct {
	*template.Local
	node *node.Node
}

var _ template.Store = pooledTemplates{}

// Remove implements template.Store.
func (t pooledTemplates) Remove(ctx context.Context, ref string) error {
	err := t.Local.Remove(ctx, ref)
	if err == nil {
		return nil
	}
	// It may be in use by idle boxes alone; a second refusal means sessions.
	versions, listErr := t.versions(ctx, ref)
	if listErr != nil || len(versions) == 0 {
		return err
	}
	for _, v := range versions {
		if err := t.node.DropTemplate(ctx, v); err != nil {
			return err
		}
	}
	return t.Local.Remove(ctx, ref)
}

// versions are the "name@version" that ref means.
func (t pooledTemplates) versions(ctx context.Context, ref string) ([]string, error) {
	all, err := t.List(ctx)
	if err != nil {
		return nil, err
	}
	var refs []string
	for _, v := range all {
		if v.Name == ref {
			refs = append(refs, v.Ref())
		}
	}
	if len(refs) == 0 {
		v, err := t.Get(ctx, ref)
		if err != nil {
			return nil, err
		}
		refs = append(refs, v.Ref())
	}
	return refs, nil
}

// warm keeps the pool filled for the templates that the operator names.
func (s *server) warm(ctx context.Context, n *node.Node, templates template.Store) error {
	for _, ref := range s.cfg.File.PoolTemplates {
		_, root, release, err := templates.Resolve(ctx, ref)
		if err != nil {
			return err
		}
		err = n.Warm("native", root, false)
		release() // the pool's boxes hold it
		if err != nil {
			return err
		}
	}
	return nil
}

// named looks up what the sessions of a project are made from.
func named(builds *build.Service) func(ctx context.Context, project string, operator bool, ref string) (*template.Template, error) {
	return func(ctx context.Context, project string, operator bool, ref string) (*template.Template, error) {
		r, err := builds.Resolve(ctx, build.Who{Project: project, Operator: operator}, ref)
		if err != nil {
			return nil, err
		}
		return r.Template, nil
	}
}

// owner tells whose a template is, and what they call it.
func owner(builds *build.Service) func(project string, operator bool, name string) (string, string) {
	return func(project string, operator bool, name string) (string, string) {
		return builds.Owner(build.Who{Project: project, Operator: operator}, name)
	}
}

// hidden tells which templates are other projects'.
func hidden(builds *build.Service) func(project string, operator bool, name string) bool {
	return func(project string, operator bool, name string) bool {
		return builds.Hidden(build.Who{Project: project, Operator: operator}, name)
	}
}
