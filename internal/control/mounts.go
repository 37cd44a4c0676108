package control

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
)

// checkMounts refuses data mounts that lie outside of the operator's list, and
// replaces each source by what its symbolic links lead to, so that what was checked is what is mounted.
func (c *Control) checkMounts(s *spec.Sandbox) error {
	if len(s.FS.Mounts) == 0 {
		return nil
	}
	mounts := slices.Clone(s.FS.Mounts)
	for i := range mounts {
		field := fmt.Sprintf("field fs.mounts[%d].source", i)
		if !below(mounts[i].Source, c.cfg.DataMounts) {
			return c.mountForbidden(field, mounts[i].Source)
		}
		source, err := filepath.EvalSymlinks(mounts[i].Source)
		if err != nil {
			return errdefs.Userf(errdefs.NotFound, field, "name a directory that exists on the node", "%s cannot be mounted: %w", mounts[i].Source, err)
		}
		if !below(source, resolved(c.cfg.DataMounts)) {
			return c.mountForbidden(field, mounts[i].Source)
		}
		mounts[i].Source = source
	}
	s.FS.Mounts = mounts
	return nil
}

func (c *Control) mountForbidden(field, source string) error {
	remedy := "ask the operator to allow its directory"
	if len(c.cfg.DataMounts) > 0 {
		remedy = "use a path below " + strings.Join(c.cfg.DataMounts, " or ")
	}
	return errdefs.Policyf(errdefs.Forbidden, field, remedy, "%s is not below a directory that may be mounted", source)
}

func resolved(dirs []string) []string {
	var out []string
	for _, d := range dirs {
		if r, err := filepath.EvalSymlinks(d); err == nil {
			out = append(out, r)
		}
	}
	return out
}

func below(path string, dirs []string) bool {
	path = filepath.Clean(path)
	return slices.ContainsFunc(dirs, func(dir string) bool {
		dir = filepath.Clean(dir)
		return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	})
}
