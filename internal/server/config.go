package server

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/site"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

// File is the configuration file of `dsec up`. Unknown keys are refused.
type File struct {
	// Scheduler is the seeds' scheduler_config.
	Scheduler spec.Scheduler `yaml:"scheduler_config"`
	// DataMounts are host directories that sessions may mount, read-only.
	DataMounts []string `yaml:"data_mounts"`
	// PoolTemplates are templates whose pool is kept filled (min_idle) before
	// anybody asks; others get a pool with their first create.
	PoolTemplates []string `yaml:"pool_templates"`
	// RegistryMirrors are asked for images instead of registries.
	RegistryMirrors []Mirror `yaml:"registry_mirrors"`
	// Registries are the hosts that images may come from; empty: all.
	Registries []string `yaml:"registries"`
	// KeepSessionsDays is how long the record of an ended session is kept; 0: 30 days.
	KeepSessionsDays int `yaml:"keep_sessions_days"`
	// Egress says what boxes may reach at most, and how.
	Egress site.Config `yaml:"egress"`
	// ReserveMemory is kept from boxes for the machine itself.
	ReserveMemory spec.Bytes `yaml:"reserve_memory"`
}

// Mirror is asked instead of a registry; both are hosts, with a port if need be.
type Mirror struct {
	Registry string `yaml:"registry"`
	Mirror   string `yaml:"mirror"`
}

func (f *File) registries() template.Registries {
	r := template.Registries{Mirrors: map[string]string{}, Allowed: f.Registries}
	for _, m := range f.RegistryMirrors {
		r.Mirrors[m.Registry] = m.Mirror
	}
	return r
}

// ReadFile reads a configuration file; "" is an empty one. What is wrong is
// named with its line and field.
func ReadFile(path string) (File, error) {
	var f File
	if path == "" {
		return f, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return f, errdefs.Userf(errdefs.NotFound, "file "+path, "name a readable file with --config", "%w", err)
	}
	if err := spec.Strict(path, b, &f); err != nil {
		return f, err
	}
	if err := spec.ValidateScheduler(&f.Scheduler); err != nil {
		return f, errdefs.Userf(errdefs.InvalidArgument, "file "+path, "", "%w", err)
	}
	for i, m := range f.RegistryMirrors {
		if m.Registry == "" || m.Mirror == "" {
			return f, errdefs.Userf(errdefs.InvalidArgument, fmt.Sprintf("file %s: registry_mirrors[%d]", path, i), "write {registry: docker.io, mirror: HOST:PORT}", "a part is missing")
		}
	}
	for i, dir := range f.DataMounts {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
			return f, errdefs.Userf(errdefs.InvalidArgument, fmt.Sprintf("file %s: data_mounts[%d]", path, i), "name a directory of data by its absolute path", "%q cannot be mounted into boxes", dir)
		}
	}
	return f, nil
}
