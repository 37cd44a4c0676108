package template

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/keyed"
	"github.com/dsec-platform/dsec/internal/layer"
	"github.com/dsec-platform/dsec/internal/layer/filelock"
)

// Options of Open. The zero value is ready to use.
type Options struct {
	Layers layer.Options
	// Builder runs init steps; nil refuses templates that have some.
	Builder    Builder
	Registries Registries
	Log        *slog.Logger
}

// Registries says where images come from.
type Registries struct {
	// Mirrors are asked instead of registries, host by host: "docker.io": "mirror.example:5000".
	Mirrors map[string]string
	// Allowed are the hosts that may be named; empty: all at public addresses, and for the operator's own imports all.
	Allowed []string
}

// Local is the Store on this node's disk.
type Local struct {
	dir    string // <data>/templates
	opts   Options
	layers *layer.Store
	key    *keyed.Key // of what steps give

	known sync.Map // path of a manifest → *known

	mu   sync.Mutex
	pins map[string]*pin // by name@version
}

var (
	_ Store    = (*Local)(nil)
	_ Importer = (*Local)(nil)
)

// Open opens the templates below the data directory, making what is missing,
// and removes half-made layers of processes that died.
func Open(dataDir string, o Options) (*Local, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Layers.Log == nil {
		o.Layers.Log = o.Log
	}
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(dataDir, "templates")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "template store "+dir, "cannot be made: %w", err)
	}
	layers, err := layer.Open(filepath.Join(dataDir, "layers"), o.Layers)
	if err != nil {
		return nil, err
	}
	key, err := keyed.Open(filepath.Join(dataDir, keyed.Name))
	if err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "template store "+dir, "its key cannot be read: %w", err)
	}
	return &Local{dir: dir, opts: o, layers: layers, key: key, pins: map[string]*pin{}}, nil
}

// Layers is the layer store below.
func (s *Local) Layers() *layer.Store { return s.layers }

// lock serialises publishing and removing between processes.
func (s *Local) lock() (*filelock.Lock, error) {
	return filelock.Exclusive(filepath.Join(s.dir, "lock"))
}

// List gives every version, names in order, newest first within a name.
// Manifests that cannot be read are logged and left out.
func (s *Local) List(ctx context.Context) ([]*Template, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var out []*Template
	for _, name := range names {
		versions, err := s.versions(name)
		if err != nil {
			return nil, err
		}
		out = append(out, versions...)
	}
	return out, ctx.Err()
}

func (s *Local) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "template store "+s.dir, "cannot be read: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// versions gives the versions of a name, newest first; none when there is no such name.
func (s *Local) versions(name string) ([]*Template, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, name, "*.json"))
	if err != nil {
		return nil, err
	}
	newest := s.newest(name)
	var out []*Template
	for _, f := range files {
		m, err := readManifest(f)
		if os.IsNotExist(err) {
			continue // removed meanwhile
		}
		if err != nil {
			s.opts.Log.Warn("a template cannot be read", "file", f, "err", err)
			continue
		}
		t := m.template()
		t.Newest = t.Version == newest
		t.InUse = s.inUse(t)
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b *Template) int { return b.Created.Compare(a.Created) })
	return out, nil
}

// Get gives one version: the newest of a name, or name@version by a unique prefix.
func (s *Local) Get(ctx context.Context, ref string) (*Template, error) {
	if t := s.inPins(ref); t != nil {
		return t, ctx.Err()
	}
	m, err := s.find(ref)
	if err != nil {
		return nil, err
	}
	t := m.template()
	t.Newest = t.Version == s.newest(t.Name)
	t.InUse = s.inUse(t)
	return t, ctx.Err()
}

// Verify reads every layer of a template again and compares digests.
func (s *Local) Verify(ctx context.Context, ref string) error {
	t, _, release, err := s.Resolve(ctx, ref)
	if err != nil {
		return err
	}
	defer release()
	for _, l := range t.Layers {
		if err := s.layers.Verify(ctx, l.Digest); err != nil {
			return err
		}
	}
	return nil
}

// find gives the manifest that ref means. It is everybody's: nobody changes it.
func (s *Local) find(ref string) (*manifest, error) {
	name, version, pinned := strings.Cut(ref, "@")
	if name == "" {
		name = BaseName
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if !pinned {
		version = s.newest(name)
	}
	if version == "" || strings.Trim(version, "0123456789abcdef") != "" {
		return nil, s.notFound(ref, name)
	}
	if k, err := s.recall(s.manifestPath(name, version)); err == nil {
		return k.m, nil
	} else if !os.IsNotExist(err) {
		return nil, err
	}
	return s.findPrefix(ref, name, version)
}

func (s *Local) findPrefix(ref, name, prefix string) (*manifest, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, name, prefix+"*.json"))
	if err != nil || len(files) == 0 {
		return nil, s.notFound(ref, name)
	}
	if len(files) > 1 {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "template "+ref, "give more digits", "the version fits %d versions", len(files))
	}
	return readManifest(files[0])
}
