package build

import (
	"context"
	"errors"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/template"
)

// Resolved is what a reference means.
type Resolved struct {
	Template *template.Template
	ID       string // of the project's template, else its name in the node's store
	Alias    string // empty if it has none
	Built    bool   // of a project's template, by a build that says whose and where its processes are
}

// Resolve gives what a project means by a reference, in this order: its own alias or alias:tag, the
// id of its own or a public template, a template of the node (name or name@version), an image
// with its registry's name, which is imported when it is first asked for.
func (s *Service) Resolve(ctx context.Context, who Who, ref string) (*Resolved, error) {
	if ref == "" {
		ref = "base"
	}
	if hasRegistry(ref) {
		t, err := s.image(ctx, who, ref)
		if err != nil {
			return nil, err
		}
		return &Resolved{Template: t, ID: t.Name, Alias: ref}, nil
	}
	name, tag, tagged := strings.Cut(ref, ":")
	s.mu.Lock()
	t, err := s.own(who.Project, name)
	foreign := false
	if err != nil {
		id, _, _ := strings.Cut(name, "@")
		if o := s.templates[id]; o != nil {
			t, foreign = o, o.Project != who.Project && !o.Public
		}
	}
	if foreign {
		s.mu.Unlock()
		return nil, noTemplate(ref)
	}
	if t != nil {
		got, err := Tag{Ref: name}, error(nil) // id@version
		if !strings.Contains(name, "@") {
			got, err = s.tagged(t, tag)
		}
		if err == nil {
			t.Uses++
			t.LastUsed = s.cfg.Now().UTC()
		}
		id, alias := t.ID, t.Alias
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		tpl, err := s.cfg.Templates.Get(ctx, got.Ref)
		if err != nil {
			return nil, err
		}
		return &Resolved{Template: tpl, ID: id, Alias: alias, Built: true}, nil
	}
	s.mu.Unlock()
	if tagged {
		return nil, noTemplate(ref)
	}
	tpl, err := s.cfg.Templates.Get(ctx, ref)
	if err == nil && s.Hidden(who, tpl.Name) {
		return nil, noTemplate(ref)
	}
	if err != nil {
		// The store names what is near, other projects' ids among it.
		if e := errdefs.From(err); e.Reason == errdefs.InvalidArgument || errors.Is(e, errdefs.ErrNotFound) && (!who.Operator || strings.Contains(ref, "/")) {
			return nil, noTemplate(ref)
		}
		return nil, err
	}
	return &Resolved{Template: tpl, ID: tpl.Name, Alias: tpl.Name}, nil
}

// Hidden tells that a template of the node's store is another project's, and not public, or an image
// that only the node's own credentials open.
func (s *Service) Hidden(who Who, name string) bool {
	if who.Operator {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.templates[name]; t != nil {
		return t.Project != who.Project && !t.Public
	}
	return strings.HasPrefix(name, operatorImage)
}

// Owner gives the project that made a template of the node's store and what it calls it, where the asker may know:
// its own, and the operator all. Empty for the node's own and for others' public ones, whose id alone is public.
func (s *Service) Owner(who Who, name string) (project, alias string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.templates[name]; t != nil && (who.Operator || t.Project == who.Project) {
		return t.Project, t.Alias
	}
	return "", ""
}

// Known gives the id of what Resolve would find, without an import and without counting as a use.
func (s *Service) Known(ctx context.Context, who Who, ref string) (id string, err error) {
	if hasRegistry(ref) {
		ref = imageName(who, ref)
	}
	s.mu.Lock()
	if t := s.templates[ref]; t != nil && t.Project != who.Project {
		public := t.Public
		s.mu.Unlock()
		if !public {
			return "", noTemplate(ref)
		}
		return ref, nil
	}
	s.mu.Unlock()
	t, err := s.cfg.Templates.Get(ctx, ref)
	if err != nil || s.Hidden(who, t.Name) {
		return "", noTemplate(ref)
	}
	return t.Name, nil
}

// hasRegistry tells an image reference by its registry: a first part that is a host's name.
func hasRegistry(ref string) bool {
	host, _, ok := strings.Cut(ref, "/")
	return ok && (host == "localhost" || strings.ContainsAny(host, ".:"))
}
