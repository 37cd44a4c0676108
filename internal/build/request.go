package build

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

var (
	aliasRE = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	tagRE   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// checkName takes "alias" or "alias:tag" apart.
func checkName(name string) (alias, tag string, err error) {
	alias, tag, tagged := strings.Cut(name, ":")
	if !aliasRE.MatchString(alias) {
		return "", "", errdefs.Userf(errdefs.InvalidArgument, "name "+clip(name), "use up to 128 of A-Z a-z 0-9 _ -", "not a template's name")
	}
	if tagged {
		err = checkTag(tag)
	}
	return alias, tag, err
}

func checkTag(tag string) error {
	if !tagRE.MatchString(tag) {
		return errdefs.Userf(errdefs.InvalidArgument, "tag "+clip(tag), "use up to 128 of A-Z a-z 0-9 _ . -", "not a tag")
	}
	return nil
}

// Request makes a build of a name, and the template if the project has none of that name.
func (s *Service) Request(ctx context.Context, project string, r Request) (*Template, *Build, error) {
	alias, tag, err := checkName(r.Name)
	if err != nil {
		return nil, nil, err
	}
	tags := slices.Clone(r.Tags)
	if tag != "" {
		tags = append(tags, tag)
	}
	if len(tags) == 0 {
		tags = []string{DefaultTag}
	}
	slices.Sort(tags)
	tags = slices.Compact(tags)
	for _, t := range tags {
		if err := checkTag(t); err != nil {
			return nil, nil, err
		}
	}
	if r.CPU < 0 || r.Memory < 0 || r.Disk < 0 {
		return nil, nil, errdefs.Userf(errdefs.InvalidArgument, "template "+alias, "give positive sizes", "a size is negative")
	}
	s.sweep(s.cfg.Now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, closing()
	}
	now := s.cfg.Now().UTC()
	t := s.templates[s.aliases[aliasKey{project, alias}]]
	if err := s.stays(t); err != nil {
		return nil, nil, err
	}
	if err := s.mayAsk(project, t, tags); err != nil {
		return nil, nil, err
	}
	if t == nil {
		t = &Template{ID: newTemplateID(), Project: project, Alias: alias, Created: now}
	}
	t.Builds++
	t.Updated = now
	b := &running{done: make(chan struct{}), Build: Build{
		ID: newBuildID(), Template: t.ID, Project: project, Status: Requested, Tags: tags, Request: r, Created: now, Updated: now}}
	if err := s.saveTemplate(t); err != nil {
		return nil, nil, err
	}
	if err := s.saveBuild(b); err != nil {
		return nil, nil, err
	}
	s.templates[t.ID], s.aliases[aliasKey{project, alias}], s.builds[b.ID] = t, t.ID, b
	asked := b.Build
	return t.copy(), &asked, nil
}

// mayAsk keeps to the limits of a project.
func (s *Service) mayAsk(project string, t *Template, tags []string) error {
	unfinished, own := 0, 0
	for _, b := range s.builds {
		if b.Project == project && !b.Status.Done() {
			unfinished++
		}
	}
	for _, o := range s.templates {
		if o.Project == project {
			own++
		}
	}
	switch {
	case unfinished >= maxUnfinished:
		e := errdefs.Limitf(errdefs.RateLimited, "project "+project, "wait until some have finished", "it has %d builds that are not finished", unfinished)
		e.Scope, e.Retryable = errdefs.ScopePlatform, true
		return e
	case t == nil && own >= maxTemplates:
		return errdefs.Limitf(errdefs.QuotaExceeded, "project "+project, "delete templates that are not needed", "it has %d templates, the most that it may have", own)
	case t != nil:
		all := maps.Clone(t.Tags)
		if all == nil {
			all = map[string]Tag{}
		}
		for _, tag := range tags {
			all[tag] = Tag{}
		}
		if len(all) > maxTags {
			return errdefs.Limitf(errdefs.QuotaExceeded, "template "+t.Alias, "remove tags that are not needed", "it would have more than %d tags", maxTags)
		}
	case len(tags) > maxTags:
		return errdefs.Limitf(errdefs.QuotaExceeded, "build", "give fewer tags", "it has more than %d tags", maxTags)
	}
	return nil
}

func (t *Template) copy() *Template {
	c := *t
	c.Tags = maps.Clone(t.Tags)
	return &c
}

// newTemplateID is a name for the node's template store that nobody guesses: 20 of a-z 2-7.
func newTemplateID() string { return strings.ToLower(rand.Text()[:20]) }

// newBuildID is a random UUID.
func newBuildID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return fmt.Sprintf("%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}

// Start begins a build that was requested. The same again, as it was sent, changes nothing.
func (s *Service) Start(_ context.Context, project, template, id string, r Recipe) error {
	if (r.Image == "") == (r.Template == "") {
		return errdefs.Userf(errdefs.InvalidArgument, "build "+id, "name one of them", "it needs either an image or a template to start from")
	}
	if len(r.Steps) > MaxSteps {
		return errdefs.Userf(errdefs.TooLarge, "build "+id, "join commands with &&", "it has more than %d steps", MaxSteps)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.build(project, template, id)
	if err != nil {
		return err
	}
	if err := s.stays(s.templates[b.Template]); err != nil {
		return err
	}
	digest := ""
	if len(r.Asked) > 0 {
		digest = s.key.Sum([]byte("build"), r.Asked)
	}
	switch {
	case s.closed:
		return closing()
	case b.Status != Requested && b.Digest == digest && digest != "":
		return nil
	case b.Status != Requested:
		return errdefs.Userf(errdefs.Conflict, "build "+id, "request a new build", "it was started already")
	}
	log, err := openLog(filepath.Join(s.cfg.Dir, "builds", id+".log"))
	if err != nil {
		return kept("build "+id, err)
	}
	b.Status, b.Digest, b.Steps, b.Updated = Waiting, digest, len(r.Steps), s.cfg.Now().UTC()
	if err := s.saveBuild(b); err != nil {
		b.Status = Requested
		log.file.Close()
		return err
	}
	b.log = log
	var ctx context.Context
	ctx, b.cancel = context.WithTimeout(s.ctx, buildLimit)
	s.wg.Go(func() { s.run(ctx, b, r) })
	return nil
}

// Cancel ends a build that has not ended, and returns when it has.
func (s *Service) Cancel(project, template, id string) error {
	s.mu.Lock()
	b, err := s.build(project, template, id)
	if err == nil && b.Status == Requested {
		err = s.end(b, "", 0, "it was cancelled")
	}
	var cancel context.CancelFunc
	if err == nil {
		cancel = b.cancel // Start may set it
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if cancel != nil {
		cancel()
	}
	<-b.done
	return nil
}
