package build

import (
	"maps"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// own finds a template of the project by alias or id. s.mu is held.
func (s *Service) own(project, ref string) (*Template, error) {
	id, ok := s.aliases[aliasKey{project, ref}]
	if !ok {
		id = ref
	}
	if t := s.templates[id]; t != nil && t.Project == project {
		return t, nil
	}
	return nil, noTemplate(ref)
}

// Get gives a template of the project, by alias or id.
func (s *Service) Get(project, ref string) (*Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.own(project, ref)
	if err != nil {
		return nil, err
	}
	return t.copy(), nil
}

// List gives the project's templates, oldest first.
func (s *Service) List(project string) []*Template {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Template
	for _, t := range s.templates {
		if t.Project == project {
			out = append(out, t.copy())
		}
	}
	slices.SortFunc(out, func(a, b *Template) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out
}

// Builds gives the builds of a template of the project, newest first.
func (s *Service) Builds(project, ref string) ([]*Build, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.own(project, ref)
	if err != nil {
		return nil, err
	}
	var out []*Build
	for _, b := range s.builds {
		if b.Template == t.ID {
			c := b.Build
			out = append(out, &c)
		}
	}
	slices.SortFunc(out, func(a, b *Build) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out, nil
}

// SetPublic lets other projects use the template by its id, or not.
func (s *Service) SetPublic(project, ref string, public bool) (*Template, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.own(project, ref)
	if err != nil {
		return nil, err
	}
	if err := s.stays(t); err != nil {
		return nil, err
	}
	was := *t
	t.Public, t.Updated = public, s.cfg.Now().UTC()
	if err := s.saveTemplate(t); err != nil {
		*t = was
		return nil, err
	}
	return t.copy(), nil
}

// Tag gives the build that target ("alias:tag", or an alias for its default) means more tags.
func (s *Service) Tag(project, target string, tags []string) (Tag, error) {
	name, tag, _ := strings.Cut(target, ":")
	if len(tags) == 0 {
		return Tag{}, errdefs.Userf(errdefs.InvalidArgument, "template "+clip(target), "give at least one", "no tags are given")
	}
	for _, t := range tags {
		if err := checkTag(t); err != nil {
			return Tag{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.own(project, name)
	if err != nil {
		return Tag{}, err
	}
	from, err := s.tagged(t, tag)
	if err != nil {
		return Tag{}, err
	}
	from.At = s.cfg.Now().UTC()
	return from, s.setTags(t, func(all map[string]Tag) {
		for _, name := range tags {
			all[name] = from
		}
	})
}

// Untag takes tags away. One that is not there is NotFound, and then none is.
func (s *Service) Untag(project, ref string, tags []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.own(project, ref)
	if err != nil {
		return err
	}
	for _, name := range tags {
		if _, ok := t.Tags[name]; !ok {
			return noTag(t, name)
		}
	}
	return s.setTags(t, func(all map[string]Tag) {
		for _, name := range tags {
			delete(all, name)
		}
	})
}

func (s *Service) setTags(t *Template, change func(map[string]Tag)) error {
	if err := s.stays(t); err != nil {
		return err
	}
	was := *t
	t.Tags = maps.Clone(t.Tags)
	if t.Tags == nil {
		t.Tags = map[string]Tag{}
	}
	change(t.Tags)
	t.Updated = s.cfg.Now().UTC()
	if len(t.Tags) > maxTags && len(t.Tags) > len(was.Tags) {
		*t = was
		return errdefs.Limitf(errdefs.QuotaExceeded, "template "+t.Alias, "remove tags that are not needed", "it would have more than %d tags", maxTags)
	}
	if err := s.saveTemplate(t); err != nil {
		*t = was
		return err
	}
	return nil
}

func noTag(t *Template, name string) error {
	return errdefs.Userf(errdefs.NotFound, "template "+t.Alias+":"+clip(name), "list its tags", "it has no such tag")
}

// tagged gives what a tag means; without one the default, or else the newest build. s.mu is held.
func (s *Service) tagged(t *Template, tag string) (Tag, error) {
	if tag != "" {
		got, ok := t.Tags[tag]
		if !ok {
			return Tag{}, noTag(t, tag)
		}
		return got, nil
	}
	if got, ok := t.Tags[DefaultTag]; ok {
		return got, nil
	}
	var newest *running
	for _, b := range s.builds {
		if b.Template == t.ID && b.Status == Ready && (newest == nil || b.Finished.After(newest.Finished)) {
			newest = b
		}
	}
	if newest == nil {
		return Tag{}, errdefs.Userf(errdefs.NotFound, "template "+t.Alias, "build it first; the log of its last build says why it failed", "no build of it has succeeded")
	}
	return Tag{Build: newest.ID, Ref: newest.Ref, At: newest.Finished}, nil
}
