package template

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// BaseName is the template that a session gets when it names none.
const BaseName = "base"

// EnsureBase makes "base" from the host if there is no template of that name: a
// view of the host's own programs and libraries below an /etc of our own, so that a first
// box needs no download. A base that somebody imported is left alone; a host view is made
// anew when what it was copied from has changed.
func (s *Local) EnsureBase(ctx context.Context) (bool, *Template, error) {
	return s.ensureBase(ctx, "/")
}

func (s *Local) ensureBase(ctx context.Context, hostRoot string) (bool, *Template, error) {
	old, err := s.find(BaseName)
	if err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		return false, nil, err
	}
	if old != nil && !old.HostView {
		t, err := s.Get(ctx, old.Name+"@"+old.Version)
		return false, t, err
	}
	view, err := readHost(hostRoot)
	if err != nil {
		return false, nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "template base", "the host cannot be read: %w", err)
	}
	if old != nil && old.Fingerprint == view.fingerprint {
		if _, err := s.root(old); err == nil {
			t, err := s.Get(ctx, old.Name+"@"+old.Version)
			return false, t, err
		}
	}
	m, err := s.makeBase(ctx, view)
	if err != nil {
		return false, nil, errdefs.From(err)
	}
	s.dropOldBases(ctx, view.boot)
	t, err := s.Get(ctx, m.Name+"@"+m.Version)
	return true, t, err
}

// dropOldBases removes host views of earlier boots. One of this boot may be the
// root of a box that outlived its daemon and is not adopted yet: it stays.
func (s *Local) dropOldBases(ctx context.Context, boot string) {
	files, _ := filepath.Glob(s.manifestPath(BaseName, "*"))
	for _, f := range files {
		m, err := readManifest(f)
		if err != nil || !m.HostView || m.Boot == boot {
			continue
		}
		if err := s.Remove(ctx, m.Name+"@"+m.Version); err != nil {
			s.opts.Log.Info("an older host view stays", "template", m.Name+"@"+m.Version, "why", err)
		}
	}
}

func (s *Local) makeBase(ctx context.Context, view *hostView) (*manifest, error) {
	release, err := s.layers.Hold()
	if err != nil {
		return nil, err
	}
	defer release()
	// No flush: after a reboot the fingerprint differs and the layer is read again.
	write := func() (layer.Info, error) {
		return s.layers.Write(ctx, layer.WriteOptions{Format: layer.Dir, NoSync: true}, view.write)
	}
	in, err := write()
	if err != nil {
		return nil, err
	}
	if time.Since(in.Created) > time.Minute && s.layers.Verify(ctx, in.Digest) != nil {
		if err := s.layers.Remove(in.Digest); err != nil {
			return nil, err
		}
		if in, err = write(); err != nil {
			return nil, err
		}
	}
	m := &manifest{Name: BaseName, Created: time.Now().UTC(), Source: "host", HostView: true, HostBinds: view.binds,
		Fingerprint: view.fingerprint, Boot: view.boot,
		Layers: []LayerRef{{Digest: in.Digest, Size: in.Size, Format: string(in.Format), Note: "host view"}}}
	if err := m.seal(); err != nil {
		return nil, err
	}
	return m, s.put(m, false)
}
