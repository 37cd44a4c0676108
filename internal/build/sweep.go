package build

import (
	"os"
	"path/filepath"
	"time"
)

// forget removes a build's record and log. s.mu is held.
func (s *Service) forget(b *running) {
	delete(s.builds, b.ID)
	for _, ext := range []string{".log", ".json"} {
		if err := os.Remove(filepath.Join(s.cfg.Dir, "builds", b.ID+ext)); err != nil && !os.IsNotExist(err) {
			s.log.Warn("a build's record cannot be removed", "build", b.ID, "err", err)
		}
	}
}

// sweep removes what nobody needs any more, at most once an hour: requests that nobody started,
// templates without a build, archives and images that were not used for long.
func (s *Service) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || now.Sub(s.swept) < time.Hour {
		return
	}
	s.swept = now
	used := map[string]bool{}
	for _, b := range s.builds {
		old := b.Status == Requested && now.Sub(b.Created) > requestLife
		if old || s.templates[b.Template] == nil && b.Status.Done() {
			s.forget(b)
			if old {
				close(b.done) // who waits for it hears that it is gone
			}
			continue
		}
		used[b.Template] = true
	}
	for id, t := range s.templates {
		if !used[id] && len(t.Tags) == 0 {
			s.drop(t)
		}
	}
	s.sweepUploads(now)
	s.wg.Go(func() { s.sweepImages(now) })
}

// drop forgets a template. s.mu is held.
func (s *Service) drop(t *Template) {
	delete(s.templates, t.ID)
	if key := (aliasKey{t.Project, t.Alias}); s.aliases[key] == t.ID {
		delete(s.aliases, key)
	}
	if err := os.Remove(filepath.Join(s.cfg.Dir, "templates", t.ID+".json")); err != nil && !os.IsNotExist(err) {
		s.log.Warn("a template's record cannot be removed", "template", t.ID, "err", err)
	}
}
