package build

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

// run waits for its turn, builds, and records the outcome.
func (s *Service) run(ctx context.Context, b *running, r Recipe) {
	defer b.cancel()
	step := 0
	var ref string
	var err error
	select {
	case s.slots <- struct{}{}:
		ref, err = s.make(ctx, b, r, &step)
		<-s.slots
	case <-ctx.Done():
		err = ctx.Err()
	}
	why := ""
	if err != nil {
		s.log.Info("a build failed", "build", b.ID, "template", b.Template, "step", step, "err", err)
		why = s.reason(ctx, err)
		b.log.add(step, "error", why)
	} else {
		b.log.add(step, "info", "the template is ready: "+ref)
	}
	s.mu.Lock()
	if err := s.end(b, ref, step, why); err != nil {
		s.log.Error("a build's outcome cannot be kept", "build", b.ID, "err", err)
	}
	stale := s.stale(b.Template)
	s.mu.Unlock()
	for _, ref := range stale {
		if err := s.cfg.Templates.Remove(s.ctx, ref); err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			s.log.Info("an older version of a template stays", "template", ref, "why", err)
		}
	}
}

func (s *Service) reason(ctx context.Context, err error) string {
	switch {
	case s.ctx.Err() != nil:
		return "the server was stopped while it was built: build it again"
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "it took longer than " + buildLimit.String()
	case ctx.Err() != nil:
		return "it was cancelled"
	}
	return errdefs.Public(err).Error()
}

// make builds and gives the version.
func (s *Service) make(ctx context.Context, b *running, r Recipe, step *int) (string, error) {
	s.mu.Lock()
	b.Status, b.Updated = Building, s.cfg.Now().UTC()
	err := s.saveBuild(b)
	s.mu.Unlock()
	if err != nil {
		return "", err
	}
	for _, n := range r.Notes {
		b.log.add(0, "info", n)
	}
	src, err := s.source(ctx, b.Project, r)
	if err != nil {
		return "", err
	}
	b.log.add(0, "info", "from "+src.String())
	q := b.Request
	over := spec.Sandbox{CPULimit: q.CPU, MemLimit: spec.Bytes(q.Memory)}
	over.FS.WritableSizeLimit = spec.Bytes(q.Disk)
	sessions := spec.Resolve(over, spec.Sandbox{})
	last := ""
	t, err := s.cfg.Importer.Import(ctx, template.ImportRequest{
		Name: b.Template, Source: src, Steps: r.Steps, Start: r.Start, User: r.User, Cwd: r.Cwd, Fresh: r.Fresh,
		Spec: over, Limits: runtime.Limits{CPU: sessions.CPULimit, Memory: q.Memory},
		Progress: func(p template.Progress) {
			if p.Step > 0 {
				*step = p.Step
			}
			line := p.Message
			if line == "" { // bytes went by
				line = p.Stage
			} else if p.Step == 0 && !strings.HasPrefix(p.Stage, "step") {
				line = p.Stage + ": " + line
			}
			if line != last || p.Step > 0 {
				b.log.add(*step, "info", line)
			}
			last = line
		},
	})
	if err != nil {
		return "", err
	}
	return t.Ref(), nil
}

// source is what a recipe begins with.
func (s *Service) source(ctx context.Context, project string, r Recipe) (template.Source, error) {
	who := Who{project, r.Privileged}
	if name, ok := strings.CutPrefix(r.Image, "e2bdev/"); ok { // the SDKs' default; the node may have its own
		name, _, _ = strings.Cut(name, ":")
		if t, err := s.cfg.Templates.Get(ctx, name); err == nil && !t.HostView && !s.Hidden(who, t.Name) {
			return template.Source{Kind: template.FromTemplate, Ref: t.Ref()}, nil
		}
	}
	if r.Image != "" {
		src := template.Source{Kind: template.Registry, Ref: r.Image, Platform: r.Platform, Login: r.Login, Guarded: true}
		if src.Login == nil && !who.Operator {
			src.Login = &template.Login{}
		}
		return src, nil
	}
	base, err := s.Resolve(ctx, who, r.Template)
	if err != nil {
		return template.Source{}, err
	}
	return template.Source{Kind: template.FromTemplate, Ref: base.Template.Ref()}, nil
}

// end records a build's outcome; the template comes first, because it says what the tags mean. s.mu is held.
func (s *Service) end(b *running, ref string, step int, why string) error {
	now := s.cfg.Now().UTC()
	b.Status, b.Reason, b.Step, b.Ref, b.Updated, b.Finished = Failed, why, step, ref, now, now
	var err error
	if t := s.templates[b.Template]; why == "" && t != nil {
		b.Status, b.Step = Ready, 0
		tags := maps.Clone(t.Tags)
		if tags == nil {
			tags = map[string]Tag{}
		}
		for _, tag := range b.Tags {
			tags[tag] = Tag{Build: b.ID, Ref: ref, At: now}
		}
		t.Tags, t.Updated = tags, now
		err = s.saveTemplate(t)
	}
	err = errors.Join(err, s.saveBuild(b))
	if b.log != nil {
		b.log.file.Close()
		b.log = nil
	}
	close(b.done)
	return err
}

// stale gives the versions of a template that no tag and neither of its two newest builds means, while
// no other build of it runs: that one may have published what is not recorded yet. It also drops the
// records of its oldest builds. s.mu is held.
func (s *Service) stale(id string) (refs []string) {
	var done []*running
	for _, b := range s.builds {
		if b.Template != id {
			continue
		}
		if b.Status == Waiting || b.Status == Building {
			return nil
		}
		if b.Status.Done() {
			done = append(done, b)
		}
	}
	slices.SortFunc(done, func(a, b *running) int { return b.Finished.Compare(a.Finished) })
	keep := map[string]bool{"": true}
	builds := map[string]bool{}
	if t := s.templates[id]; t != nil {
		for _, tag := range t.Tags {
			keep[tag.Ref], builds[tag.Build] = true, true
		}
	}
	ready := 0
	for i, b := range done {
		if b.Status == Ready && ready < 2 {
			ready++
			keep[b.Ref] = true
		}
		if !keep[b.Ref] && !slices.Contains(refs, b.Ref) {
			refs = append(refs, b.Ref)
		}
		if i >= keepBuilds && !builds[b.ID] {
			s.forget(b)
		}
	}
	return refs
}
