package template

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer/filelock"
)

// Remove deletes a version, or all of a name, and the layers that nobody else
// uses. All or nothing: one version in use refuses the whole.
func (s *Local) Remove(ctx context.Context, ref string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.removeManifests(ref); err != nil {
		return err
	}
	return s.collect()
}

func (s *Local) removeManifests(ref string) error {
	l, err := s.lock()
	if err != nil {
		return err
	}
	defer l.Close()
	first, err := s.find(ref)
	if err != nil {
		return err
	}
	doomed := []*Template{first.template()}
	if !strings.Contains(ref, "@") {
		if doomed, err = s.versions(first.Name); err != nil {
			return err
		}
	}
	for _, t := range doomed {
		use, err := s.tryUnused(t.Name, t.Version)
		if errors.Is(err, filelock.ErrLocked) {
			return errdefs.Userf(errdefs.Conflict, "template "+t.Ref(), "stop the sessions and pools that use it first", "it is in use")
		}
		if err != nil {
			return err
		}
		defer use.Close()
	}
	for _, t := range doomed {
		if err := os.Remove(s.manifestPath(t.Name, t.Version)); err != nil {
			return err
		}
		os.Remove(s.usePath(t.Name, t.Version))
	}
	return s.afterRemoval(first.Name)
}

// afterRemoval points the bare name at the newest version that is left, or
// removes the name.
func (s *Local) afterRemoval(name string) error {
	left, err := s.versions(name)
	if err != nil {
		return err
	}
	if len(left) == 0 {
		return os.RemoveAll(filepath.Join(s.dir, name))
	}
	if _, err := readManifest(s.manifestPath(name, s.newest(name))); err == nil {
		return nil
	}
	return s.setNewest(name, left[0].Version)
}

// collect removes the layers that no template refers to. While somebody
// imports, it is left to the end of that import.
func (s *Local) collect() error {
	removed, _, err := s.layers.Collect(func() (map[string]bool, error) {
		names, err := s.names()
		if err != nil {
			return nil, err
		}
		used := map[string]bool{}
		for _, name := range names {
			files, err := filepath.Glob(filepath.Join(s.dir, name, "*.json"))
			if err != nil {
				return nil, err
			}
			for _, f := range files {
				m, err := readManifest(f)
				if os.IsNotExist(err) {
					continue
				}
				if err != nil {
					return nil, err // its layers are not known: remove nothing
				}
				for _, l := range m.Layers {
					used[l.Digest] = true
				}
			}
		}
		return used, nil
	})
	if len(removed) > 0 {
		s.opts.Log.Info("removed unused layers", "count", len(removed))
	}
	return err
}
