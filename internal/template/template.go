// Package template keeps named, versioned environments: content-addressed
// layers plus defaults, on this node's disk.
package template

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/spec"
)

// Template is one version of an environment. Immutable.
type Template struct {
	Name    string
	Version string // first 12 hex characters of Digest
	Digest  string // sha256 over the manifest
	Created time.Time
	Source  string // "oci:…", "debian:bookworm", "dir:…", "host"
	Layers  []LayerRef
	Size    int64
	// Defaults that a session's spec overrides.
	Env      []string
	Cwd      string
	User     string
	Spec     spec.Sandbox
	HostView bool // base: not portable, read-only root only
	InUse    int
}

// LayerRef is a layer of a template, top first.
type LayerRef struct {
	Digest string
	Size   int64
	Format string // dir, erofs
	Note   string // what it holds: "image layer", "toolkit", "init: pip install …"
}

// Store is the node's templates. Safe for concurrent use; several processes may
// share one directory (the CLI imports while a daemon runs).
type Store interface {
	// Resolve gives the newest version of name, or name@version (a unique prefix
	// is enough), and the root a runtime builds from it. The template cannot be removed
	// until release is called. NotFound names the near misses.
	Resolve(ctx context.Context, ref string) (t *Template, root runtime.Root, release func(), err error)
	List(ctx context.Context) ([]*Template, error)
	Get(ctx context.Context, ref string) (*Template, error)
	// Remove deletes a version (or all of a name) and the layers nobody else uses;
	// Conflict while a session uses it.
	Remove(ctx context.Context, ref string) error
	// EnsureBase makes "base" from the host if there is no template of that name.
	EnsureBase(ctx context.Context) (made bool, t *Template, err error)
}
