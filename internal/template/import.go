package template

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
	"github.com/dsec-platform/dsec/internal/spec"
)

// buildCache is how long the finished part of a failed build is kept.
const buildCache = 24 * time.Hour

// build is one import while it runs.
type build struct {
	s   *Local
	req ImportRequest
	// layers so far, top first.
	layers []LayerRef
	infos  []layer.Info
	config imageConfig
	// Of the template that the build is from, or zero.
	base    spec.Sandbox
	started StartCommand
	// keys of costly layers that this build made or found.
	keys []buildKey
	at   Progress   // the step that runs
	mu   sync.Mutex // progress
}

type buildKey struct {
	layer.Key
	made bool
}

// imageConfig are the defaults that a source brings.
type imageConfig struct {
	env       []string
	cwd, user string
}

// Import makes a version of a template.
func (s *Local) Import(ctx context.Context, req ImportRequest) (*Template, error) {
	if err := s.checkRequest(&req); err != nil {
		return nil, err
	}
	release, err := s.layers.Hold()
	if err != nil {
		return nil, err
	}
	b := &build{s: s, req: req}
	m, err := b.run(ctx)
	b.settleKeys(err)
	release()
	if cerr := s.collect(); cerr != nil {
		s.opts.Log.Warn("cannot remove unused layers", "err", cerr)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, errdefs.From(ctx.Err())
		}
		return nil, errdefs.From(err)
	}
	t := m.template()
	t.Newest = true
	return t, nil
}

func (s *Local) checkRequest(req *ImportRequest) error {
	if err := checkName(req.Name); err != nil {
		return err
	}
	if (len(req.Init) > 0 || !req.Start.IsZero()) && s.opts.Builder == nil {
		return errdefs.Userf(errdefs.Unsupported, "template "+req.Name, "import it on a node that can run boxes", "init steps need a runtime")
	}
	for _, kv := range req.Env {
		if k, _, ok := strings.Cut(kv, "="); !ok || k == "" || strings.ContainsRune(kv, 0) {
			return errdefs.Userf(errdefs.InvalidArgument, "env "+kv, "write NAME=value", "not an environment entry")
		}
	}
	return nil
}

func (b *build) run(ctx context.Context) (*manifest, error) {
	if err := b.source(ctx); err != nil {
		return nil, err
	}
	if b.req.Source.Kind != FromTemplate { // which has it
		if err := b.toolkit(ctx, true); err != nil {
			return nil, err
		}
	}
	b.begin()
	if err := b.steps(ctx); err != nil {
		return nil, err
	}
	for i, cmd := range b.req.Init {
		if err := b.initStep(ctx, i, cmd); err != nil {
			return nil, err
		}
	}
	if len(b.req.Init)+len(b.req.Steps) > 0 {
		if err := b.toolkit(ctx, false); err != nil {
			return nil, err
		}
	}
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	m := &manifest{Name: b.req.Name, Created: time.Now().UTC(), Source: b.req.Source.String(), Layers: b.layers,
		Env: b.config.env, Cwd: b.config.cwd, User: b.config.user, Spec: spec.Merge(b.base, b.req.Spec), Start: b.started}
	if err := m.seal(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return m, b.s.put(m, true)
}

func (b *build) source(ctx context.Context) error {
	switch b.req.Source.Kind {
	case Registry, Layout, Archive:
		return b.image(ctx)
	case Tar:
		return b.rootfsTar(ctx)
	case Dir:
		return b.rootfsDir(ctx)
	case Debian:
		return b.debian(ctx)
	case FromTemplate:
		return b.template(ctx)
	}
	return errdefs.Userf(errdefs.InvalidArgument, "source "+b.req.Source.String(), "use oci, oci-layout, archive, tar, dir, debian or template", "unknown kind of source")
}

// push puts a layer on top.
func (b *build) push(in layer.Info, note string) {
	b.layers = slices.Insert(b.layers, 0, LayerRef{Digest: in.Digest, Size: in.Size, Format: string(in.Format), Note: note})
	b.infos = slices.Insert(b.infos, 0, in)
}

func (b *build) digests() []string {
	var out []string
	for _, l := range b.layers {
		out = append(out, l.Digest)
	}
	return out
}

// remember makes a costly layer findable by what it was made of, kept until the
// build's end is known.
func (b *build) remember(key string, in layer.Info) error {
	k := layer.Key{Key: key, Layer: in.Digest, With: b.digests(), Until: time.Now().Add(buildCache)}
	b.keys = append(b.keys, buildKey{k, true})
	return b.s.layers.SetKey(k)
}

// recall finds a layer that remember kept, here or in an earlier build.
func (b *build) recall(key string, maxAge time.Duration) (layer.Info, bool) {
	in, k, ok := b.s.layers.ByKey(key)
	if !ok || b.req.Fresh || time.Since(k.Created) > maxAge {
		return in, false
	}
	b.keys = append(b.keys, buildKey{k, false})
	return in, true
}

// errStep marks the failure of an init step, as opposed to that of the platform
// or the end of ctx.
type errStep struct{ error }

func (e errStep) Unwrap() error { return e.error }

// settleKeys ends the build's hold on its cached layers: after success the
// manifest holds them, after an init step's failure they stay for the next
// attempt, else they go.
func (b *build) settleKeys(err error) {
	if _, failedStep := errors.AsType[errStep](err); failedStep {
		return
	}
	for _, k := range b.keys {
		if err == nil {
			k.Until, k.With = time.Time{}, nil
			b.s.layers.SetKey(k.Key)
		} else if k.made {
			b.s.layers.DropKey(k.Key.Key)
		}
	}
}

func (b *build) progress(p Progress) {
	if b.req.Progress == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.req.Progress(p)
}

// mergeEnv lets later entries win, in the order of first appearance.
func mergeEnv(base, over []string) []string {
	var out []string
	at := map[string]int{}
	for _, kv := range slices.Concat(base, over) {
		k, _, _ := strings.Cut(kv, "=")
		if i, ok := at[k]; ok {
			out[i] = kv
			continue
		}
		at[k] = len(out)
		out = append(out, kv)
	}
	return out
}
