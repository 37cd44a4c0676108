package build

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/keyed"
	"github.com/dsec-platform/dsec/internal/layer/jsonfile"
	"github.com/dsec-platform/dsec/internal/template"
)

// Importer makes the templates. *template.Local is one.
type Importer interface {
	template.Importer
	// ImageDigest asks the registry what a reference means now.
	ImageDigest(ctx context.Context, src template.Source) (string, error)
}

// Config of a service. Dir, Templates and Importer must be set.
type Config struct {
	Dir       string // the service's own
	Templates template.Store
	Importer  Importer
	// Running is how many builds run at a time; 2.
	Running int
	// MaxUpload bounds the bytes of an archive, 4 GiB; MaxUploads those of a project's together, 16 GiB.
	MaxUpload, MaxUploads int64
	Logger                *slog.Logger
	Now                   func() time.Time
}

// Service is the builds of a node. Safe for concurrent use.
type Service struct {
	cfg    Config
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}
	key    *keyed.Key

	mu        sync.Mutex
	closed    bool
	templates map[string]*Template
	aliases   map[aliasKey]string
	builds    map[string]*running
	images    map[string]*imageFlight
	swept     time.Time
	leaving   map[string]bool        // templates that are being deleted: nothing is begun for them
	rooms     map[string]*uploadRoom // of projects that send archives now
}

type aliasKey struct{ project, alias string }

// running is a build and, while it runs, what it takes to follow and to end it.
type running struct {
	Build
	log    *buildLog // nil when it does not run
	cancel context.CancelFunc
	done   chan struct{} // closed at its end
}

// Open reads what is there. Builds that the last server did not finish are in error.
func Open(cfg Config) (*Service, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Running == 0 {
		cfg.Running = defaultRunning
	}
	if cfg.MaxUpload == 0 {
		cfg.MaxUpload = maxUpload
	}
	if cfg.MaxUploads == 0 {
		cfg.MaxUploads = maxUploads
	}
	s := &Service{cfg: cfg, rooms: map[string]*uploadRoom{}, leaving: map[string]bool{}, log: cfg.Logger, slots: make(chan struct{}, cfg.Running),
		templates: map[string]*Template{}, aliases: map[aliasKey]string{}, builds: map[string]*running{}, images: map[string]*imageFlight{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, d := range []string{"templates", "builds", "uploads", "images"} {
		if err := os.MkdirAll(filepath.Join(cfg.Dir, d), 0o700); err != nil {
			return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "builds in "+cfg.Dir, "cannot be kept: %w", err)
		}
	}
	var err error
	if s.key, err = keyed.Open(filepath.Join(cfg.Dir, keyed.Name)); err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "builds in "+cfg.Dir, "cannot be kept: %w", err)
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	halves, _ := filepath.Glob(filepath.Join(cfg.Dir, "uploads", "*", ".new-*"))
	for _, f := range halves { // of a server that was killed
		if err := os.Remove(f); err != nil {
			s.log.Warn("a half-sent archive cannot be removed", "file", f, "err", err)
		}
	}
	s.sweep(cfg.Now())
	return s, nil
}

// Close cancels the builds that run and returns when they have ended. It is idempotent.
func (s *Service) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	return nil
}

func (s *Service) load() error {
	err := eachFile(filepath.Join(s.cfg.Dir, "templates"), ".json", func(path string) error {
		t := &Template{}
		if err := jsonfile.Read(path, t); err != nil {
			return err
		}
		s.templates[t.ID] = t
		s.aliases[aliasKey{t.Project, t.Alias}] = t.ID
		return nil
	})
	if err != nil {
		return err
	}
	return eachFile(filepath.Join(s.cfg.Dir, "builds"), ".json", func(path string) error {
		b := &running{done: make(chan struct{})}
		if err := jsonfile.Read(path, &b.Build); err != nil {
			return err
		}
		s.builds[b.ID] = b
		if b.Status == Requested {
			return nil
		}
		close(b.done)
		if b.Status.Done() {
			return nil
		}
		b.Status, b.Reason = Failed, "the server was stopped while it was built: build it again"
		if t := s.templates[b.Template]; t != nil { // it may have been finished but for this record
			for _, tag := range t.Tags {
				if tag.Build == b.ID {
					b.Status, b.Reason, b.Ref = Ready, "", tag.Ref
				}
			}
		}
		b.Updated = s.cfg.Now().UTC()
		b.Finished = b.Updated
		return s.saveBuild(b)
	})
}

// eachFile calls do for the files of a directory; half-written ones are removed.
func eachFile(dir, ext string, do func(path string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), ".new-"):
			err = os.Remove(path)
		case strings.HasSuffix(e.Name(), ext):
			err = do(path)
		default:
			err = nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "record "+path, "cannot be read: %w", err)
		}
	}
	return nil
}

// saveTemplate and saveBuild keep a record. s.mu is held.
func (s *Service) saveTemplate(t *Template) error {
	return kept("template "+t.Alias, jsonfile.Write(filepath.Join(s.cfg.Dir, "templates", t.ID+".json"), t, false))
}

func (s *Service) saveBuild(b *running) error {
	return kept("build "+b.ID, jsonfile.Write(filepath.Join(s.cfg.Dir, "builds", b.ID+".json"), &b.Build, false))
}

func kept(object string, err error) error {
	if err == nil {
		return nil
	}
	return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, object, "its record cannot be kept: %w", err)
}

// build gives a build that the project may see. s.mu is held.
func (s *Service) build(project, template, id string) (*running, error) {
	b := s.builds[id]
	if b == nil || b.Project != project || b.Template != template {
		return nil, errdefs.Userf(errdefs.NotFound, "build "+id, "take the ids that the request for the build gave", "template %s has no such build", template)
	}
	return b, nil
}

// Build gives one build.
func (s *Service) Build(project, template, id string) (*Build, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, err := s.build(project, template, id)
	if err != nil {
		return nil, err
	}
	out := b.Build
	return &out, nil
}

// Wait returns when a build has ended, or with ctx.
func (s *Service) Wait(ctx context.Context, project, template, id string) (*Build, error) {
	s.mu.Lock()
	b, err := s.build(project, template, id)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-b.done:
		return s.Build(project, template, id)
	case <-ctx.Done():
		return nil, errdefs.From(ctx.Err())
	}
}

func closing() error {
	return errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "server", "it is stopping")
}

func noTemplate(ref string) error {
	return errdefs.Userf(errdefs.NotFound, "template "+clip(ref), "build it, or for an image write its registry too, such as docker.io/library/python:3.12", "there is no such template")
}

func clip(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%.100q…", s)
	}
	return s
}
