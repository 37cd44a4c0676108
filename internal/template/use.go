package template

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
	"github.com/dsec-platform/dsec/internal/layer/filelock"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// pin is a version that this process uses: one shared lock however many
// sessions, so that the kernel unpins it when the process dies.
type pin struct {
	lock *filelock.Lock
	refs int
	t    *Template
	root runtime.Root
}

func (s *Local) usePath(name, version string) string {
	return filepath.Join(s.dir, name, version+".use")
}

// inPins gives the version that ref means when this process uses it: then it exists and its
// manifest was read. Every create asks, so that this spares it files and their decoding.
func (s *Local) inPins(ref string) *Template {
	name, version, pinned := strings.Cut(ref, "@")
	if name == "" {
		name = BaseName
	}
	if checkName(name) != nil {
		return nil
	}
	newest := s.newest(name)
	if !pinned {
		version = newest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pins[name+"@"+version]
	if p == nil {
		return nil
	}
	t := *p.t
	t.Newest, t.InUse = version == newest, p.refs
	return &t
}

// pinAgain is pin for a whole ref that this process uses already; nil if it does not.
func (s *Local) pinAgain(ref string) *pin {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pins[ref]
	if p != nil {
		p.refs++
	}
	return p
}

// Resolve gives a template, the root a runtime builds from it, and its release.
func (s *Local) Resolve(ctx context.Context, ref string) (*Template, runtime.Root, func(), error) {
	for range 500 {
		if err := ctx.Err(); err != nil {
			return nil, runtime.Root{}, nil, err
		}
		p := s.pinAgain(ref)
		var err error
		if p == nil {
			var m *manifest
			if m, err = s.find(ref); err != nil {
				return nil, runtime.Root{}, nil, err
			}
			p, err = s.pin(m)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, filelock.ErrLocked) {
			time.Sleep(time.Millisecond) // being removed, or looked at by List
			continue
		}
		if err != nil {
			return nil, runtime.Root{}, nil, err
		}
		t := *p.t
		return &t, p.root, sync.OnceFunc(func() { s.unpin(t.Ref()) }), nil
	}
	return nil, runtime.Root{}, nil, errdefs.Userf(errdefs.Conflict, "template "+ref, "try again", "it is being removed")
}

// pin never waits for a lock: a remover that holds it needs s.mu.
func (s *Local) pin(m *manifest) (*pin, error) {
	ref := m.Name + "@" + m.Version
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pins[ref]; p != nil {
		p.refs++
		return p, nil
	}
	l, err := filelock.TryShared(s.usePath(m.Name, m.Version))
	if err != nil {
		return nil, err
	}
	// Only now can nobody remove it any more: look again.
	path := s.manifestPath(m.Name, m.Version)
	k, err := s.recall(path)
	if err == nil {
		var root runtime.Root
		if root, err = s.rootOf(path, k); err == nil {
			p := &pin{lock: l, refs: 1, t: k.m.template(), root: root}
			s.pins[ref] = p
			return p, nil
		}
	}
	l.Close()
	return nil, err
}

func (s *Local) unpin(ref string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pins[ref]
	if p.refs--; p.refs == 0 {
		delete(s.pins, ref)
		p.lock.Close()
	}
}

// root says where the layers are.
func (s *Local) root(m *manifest) (runtime.Root, error) {
	r := runtime.Root{Template: m.Name + "@" + m.Version, HostView: m.HostView, HostBinds: m.HostBinds}
	for _, ref := range m.Layers {
		in, err := s.layers.Get(ref.Digest)
		if err != nil {
			return r, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "template "+r.Template, "a layer is missing, remove the template and import it again: %w", err)
		}
		r.Layers = append(r.Layers, runtime.Layer{Digest: in.Digest, Path: in.Path, EROFS: in.Format == layer.EROFS})
	}
	return r, nil
}

// inUse counts this process's uses, or tells that only others have some.
func (s *Local) inUse(t *Template) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pins[t.Ref()]; p != nil {
		return p.refs
	}
	l, err := filelock.TryExisting(s.usePath(t.Name, t.Version))
	l.Close()
	if errors.Is(err, filelock.ErrLocked) {
		return 1
	}
	return 0
}

// tryUnused locks a version against new uses, or tells that it has some. Listing
// looks by locking too, for an instant: hence the second try.
func (s *Local) tryUnused(name, version string) (*filelock.Lock, error) {
	path := s.usePath(name, version)
	l, err := filelock.TryExclusive(path)
	for range 3 {
		if !errors.Is(err, filelock.ErrLocked) {
			break
		}
		time.Sleep(2 * time.Millisecond)
		l, err = filelock.TryExclusive(path)
	}
	return l, err
}
