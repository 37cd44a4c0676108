// Package template keeps named, versioned environments: content-addressed
// layers plus defaults, on this node's disk.
//
// Below the data directory:
//
//	layers/                          internal/layer
//	templates/<name>/<version>.json  the manifest
//	templates/<name>/<version>.use   locked, shared, by every process that uses the version
//	templates/<name>/newest          the version that the bare name means
//	templates/lock                   serialises publishing and removing
package template

import (
	"context"
	"io"
	"time"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/spec"
)

// Template is one version of an environment. Immutable.
type Template struct {
	Name    string
	Version string // first 12 hex characters of Digest
	Digest  string // sha256 over the manifest's content: layers and defaults
	Created time.Time
	Source  string // "oci:…", "debian:bookworm", "dir:…", "host"
	Layers  []LayerRef
	Size    int64
	// Defaults that a session's spec overrides.
	Env      []string
	Cwd      string
	User     string
	Spec     spec.Sandbox
	Start    StartCommand
	HostView bool // base: not portable, read-only root only
	Newest   bool // what the bare name means
	InUse    int  // sessions of this process, or 1 when only other processes use it
}

// Ref is "name@version".
func (t *Template) Ref() string { return t.Name + "@" + t.Version }

// LayerRef is a layer of a template, top first.
type LayerRef struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	Format string `json:"format"` // dir, erofs
	Note   string `json:"note"`   // what it holds: "image layer", "toolkit", "init: pip install …"
}

// Store is the node's templates. Safe for concurrent use; several processes may
// share one directory (the CLI imports while a daemon runs).
type Store interface {
	// Resolve gives the newest version of name, or name@version (a unique prefix
	// is enough), and the root a runtime builds from it; "" is base. The template cannot be removed
	// until release is called (idempotent) or this process ends. NotFound names the near misses.
	Resolve(ctx context.Context, ref string) (t *Template, root runtime.Root, release func(), err error)
	// List gives every version, names in order, newest first within a name.
	List(ctx context.Context) ([]*Template, error)
	Get(ctx context.Context, ref string) (*Template, error)
	// Remove deletes a version (or all of a name) and the layers nobody else uses;
	// Conflict while a session uses it.
	Remove(ctx context.Context, ref string) error
	// EnsureBase makes "base" from the host if there is no template of that name,
	// and renews a host view that the host has outgrown.
	EnsureBase(ctx context.Context) (made bool, t *Template, err error)
}

// Importer makes templates. *Local is one.
type Importer interface {
	// Import makes a version of req.Name and the newest one; the same content and
	// defaults give the same version. When it fails or ctx ends, nothing is left,
	// but for the finished init steps of a build whose later step failed: those are kept for a
	// day so that the next attempt starts there.
	Import(ctx context.Context, req ImportRequest) (*Template, error)
	// Verify reads every layer of a template again and compares digests.
	Verify(ctx context.Context, ref string) error
}

// ImportRequest says what to import and how.
type ImportRequest struct {
	Name   string
	Source Source
	// Steps are run first, each kept as a layer where it changes files.
	Steps []Step
	// Start is tried out at the end. Unset, a template that the source is hands its own on.
	Start StartCommand
	// Limits of the boxes that run steps; zero fields mean the builder's own.
	Limits runtime.Limits
	// Init are shell commands, run once now as root over the layers so far; each
	// becomes a layer.
	Init []string
	// Env entries ("K=V") are added to the source's own; Cwd and User replace them.
	Env       []string
	Cwd, User string
	// Spec are the template's defaults for sessions.
	Spec spec.Sandbox
	// Fresh runs builds and init steps again even when their result is cached.
	Fresh bool
	// Progress, when not nil, is told what goes on; one call at a time.
	Progress func(Progress)
}

// Progress of an import.
type Progress struct {
	Stage   string // "layer 2/5", "debian", "step 1/3", "init 1/3", "toolkit", "start"
	Step    int    // 0: the source; else the number of the step, one more for the start command
	Message string // a line of a tool's output, or what is done
	Done    int64  // bytes
	Total   int64  // 0: not known
}

// Builder runs init steps in real boxes. The composition root makes it of the
// native runtime.
type Builder interface {
	// RunInBox makes a box over run.Root with a writable overlay root and no other writable
	// path but /tmp, and runs run.Argv in it. When that ended with 0, every
	// process of the box is ended and collect gets the box's upper directory on the host
	// (ids are the container's), before the box is destroyed. Another exit is a
	// User error with the exit code, and collect is not called. Nothing of the box is left.
	RunInBox(ctx context.Context, run BuildRun, collect func(upper string) error) error
	// StartInBox makes such a box, runs a template's start command in it and returns when it is
	// ready. Nothing of the box is left or kept.
	StartInBox(ctx context.Context, run BuildRun, start StartCommand) error
}

// BuildRun is one command in a box.
type BuildRun struct {
	Root   runtime.Root
	Argv   []string
	Env    []string
	Cwd    string
	User   string         // empty: root
	Limits runtime.Limits // zero fields mean the builder's own
	Output io.Writer      // stdout and stderr as they come
}
