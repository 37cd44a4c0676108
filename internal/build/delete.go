package build

import (
	"context"
	"errors"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Delete cancels the template's builds and removes it with all its versions; refused while
// sessions use one. Meanwhile nothing can be begun for it.
func (s *Service) Delete(ctx context.Context, project, ref string) error {
	t, unfinished, err := s.leave(project, ref)
	if err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		delete(s.leaving, t.ID)
		s.mu.Unlock()
	}()
	for _, id := range unfinished {
		if err := s.Cancel(project, t.ID, id); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			return err
		}
	}
	if err := s.cfg.Templates.Remove(ctx, t.ID); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.builds {
		if b.Template == t.ID && b.Status.Done() {
			s.forget(b)
		}
	}
	s.drop(t)
	return nil
}

// leave begins a deletion, and gives the builds that have not ended.
func (s *Service) leave(project, ref string) (t *Template, unfinished []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, err = s.own(project, ref); err != nil {
		return nil, nil, err
	}
	if err := s.stays(t); err != nil {
		return nil, nil, err
	}
	s.leaving[t.ID] = true
	for _, b := range s.builds {
		if b.Template == t.ID && !b.Status.Done() {
			unfinished = append(unfinished, b.ID)
		}
	}
	return t, unfinished, nil
}

// stays refuses what would begin something for a template that is being deleted. s.mu is held.
func (s *Service) stays(t *Template) error {
	if t == nil || !s.leaving[t.ID] {
		return nil
	}
	return errdefs.Userf(errdefs.Conflict, "template "+t.Alias, "ask again when the deletion has ended", "it is being deleted")
}
