// Package runtime is how a box is isolated: the contract that native, docker,
// gvisor and microvm runtimes keep, and the plain data they share.
//
// A Runtime makes boxes and hands over a byte stream to the guest inside; it
// knows nothing of sessions, ops, SQL or HTTP. The node drives it. A box's life:
//
//	Create ──► Dial (any number of times) / Claim / Freeze / Thaw / SetLimits ──► Destroy
//	   ▲                                   │
//	   └── Open (after a daemon restart) ◄─┘ the box lives on while the daemon is away
//
// Every implementation passes runtimetest.
package runtime

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"time"
)

// Runtime makes boxes of one kind. All methods are safe for concurrent use.
type Runtime interface {
	// Name is the value of a spec's runtime field: "native", "fake", ….
	Name() string
	// Probe says what this runtime can do on this machine. Its answer is cached
	// by the implementation; it never guesses from version numbers.
	Probe(ctx context.Context) Probe
	// Create makes a box and returns when its guest accepts connections. On an
	// error, and when ctx ends first, nothing of the box is left behind (what
	// cannot be undone at once is found by Sweep). cfg.ID must be unused; it is
	// a valid file name and DNS label.
	Create(ctx context.Context, cfg Config) (Box, error)
	// Open takes over a live box from its record after a restart of the daemon.
	// errdefs.ErrBoxGone when its PID 1 does not live any more.
	Open(ctx context.Context, rec Record) (Box, error)
	// Sweep finds everything on this machine that this runtime made under this
	// data directory (processes, cgroups, mounts, directories, loop devices) and
	// that belongs to no id for which keep is true, destroys it, and reports what it
	// found. keep must be true for boxes in creation too. It is asked after a thing was seen: what
	// is gone by then was removed by its owner and is no orphan.
	Sweep(ctx context.Context, keep func(id string) bool) ([]Orphan, error)
	// Close releases what the daemon holds (descriptors, goroutines). Boxes
	// live on and can be opened by the next daemon.
	Close() error
}

// Preparer is a Runtime that can make a part of a box before anybody has said
// what the box shall be.
type Preparer interface {
	// Prepare makes the part of box id that no Config changes. Create with this id
	// goes on from there, or anew where that is not possible. Until then it is in Sweep's reach
	// like a box, and it does not outlive the daemon. On an error nothing is left.
	Prepare(ctx context.Context, id string) error
}

// Box is one isolated environment. All methods are safe for concurrent use.
type Box interface {
	ID() string
	// Record is what Open needs; the node journals it before it uses the box, and
	// again after a Claim.
	Record() Record
	// Dial opens a new control connection to the guest (guestproto); the newest
	// one replaces older ones.
	Dial(ctx context.Context) (net.Conn, error)
	// Claim turns a pooled box into the one a session asked for: everything in c
	// is applied, or an error is returned and the box must be destroyed. It is
	// called at most once, before any op.
	Claim(ctx context.Context, c Claim) error
	// SetLimits replaces the limits of the running box.
	SetLimits(ctx context.Context, l Limits) error
	// Usage reads the agent's resource counters.
	Usage(ctx context.Context) (Usage, error)
	// Freeze stops every agent process, not the guest; Thaw lets them go on. Both idempotent.
	Freeze(ctx context.Context) error
	Thaw(ctx context.Context) error
	// KillAgent kills every agent process (not PID 1) at once, whatever they did to hide.
	KillAgent(ctx context.Context) error
	// Done is closed when the box's PID 1 is gone, whoever ended it.
	Done() <-chan struct{}
	// Events delivers memory warnings and OOM kills. The channel is closed
	// after Done. A slow reader loses events, never blocks the box.
	Events() <-chan Event
	// Destroy kills the whole tree and removes everything of the box. It is
	// idempotent and returns with proof: nil means that nothing is left
	// (processes, cgroups, mounts, directories, devices). It must not be cut
	// short by ctx half-way: what is started is finished or reported.
	Destroy(ctx context.Context) error
}

// Networked is a Box whose network namespace can be served from outside.
type Networked interface {
	// Netns opens the box's network namespace. The caller closes the file soon: it keeps the
	// namespace alive.
	Netns() (*os.File, error)
}

// Config is everything that is needed to make a box.
type Config struct {
	ID           string
	Root         Root
	RootWritable bool
	// Pooled says that the box is made ahead of demand: Claim holds the pool's own
	// limits only, and Box.Claim follows once before any op. In a box that is
	// not pooled everything in Claim is applied by Create and Box.Claim is never called.
	Pooled bool
	Claim  // what could also be applied later to a pooled box
}

// Claim is what may still differ when a pooled box is claimed.
type Claim struct {
	Limits   Limits
	Hostname string
	// User is the default user of ops: a name in the box's passwd or a number.
	User string
	// WritableDirs are absolute box paths backed by the box's store. A pooled box is made with
	// the template's own; others are added at the claim.
	WritableDirs []string
	// StoreSize bounds all persistent writes together. Store is "auto", "tmpfs" or "disk".
	StoreSize int64
	Store     string
	TmpSize   int64
	Mounts    []DataMount
	Seccomp   Seccomp
	// NewPrivileges lifts no_new_privs.
	NewPrivileges bool
	Rlimits       Rlimits
	// Env is the base environment of ops ("K=V"), secrets included: it reaches the guest's memory
	// and the ops' processes only, and is not part of Record.
	Env []string
}

// Root names what the root file system is made of.
type Root struct {
	// Template is "name@version"; it is part of the pool's key.
	Template string
	// Layers, top first, absolute host paths: a directory, or an EROFS image
	// (regular file). Ids on disk are the container's.
	Layers []Layer
	// HostView marks the non-portable base template: Layers[0] is a skeleton
	// directory and HostBinds are shown read-only over it, not id-mapped.
	HostView  bool
	HostBinds []HostBind
}

// Layer is an immutable, content-addressed file tree on this node.
type Layer struct {
	Digest string // "sha256:…"
	Path   string
	EROFS  bool
}

// HostBind shows a host directory or file read-only at Target; Masked paths
// (relative to Target) are covered by an empty directory.
type HostBind struct {
	Source, Target string
	Masked         []string
}

// DataMount shows a host path read-only, nosuid, nodev at Target.
type DataMount struct{ Source, Target string }

// Limits of a box. Zero means unlimited, but for Memory and Pids which must be set.
type Limits struct {
	Memory int64   // bytes
	CPU    float64 // cores, at most
	// CPURequest is what admission promises, in cores; no runtime acts on it.
	CPURequest float64
	Pids       int64
	ReadBPS    int64
	WriteBPS   int64
}

// Seccomp names a profile and what is allowed on top.
type Seccomp struct {
	Profile    string
	AllowExtra []string
}

// Rlimits of agent processes; zero means the runtime's default.
type Rlimits struct{ NoFile, FSize, Stack uint64 }

// Usage is a reading of the agent's counters since the box was made.
type Usage struct {
	Memory, MemoryPeak, MemoryLimit int64 // bytes
	CPU                             time.Duration
	Pids                            int64
	ReadBytes, WriteBytes           int64 // block I/O
	StoreUsed, StoreLimit           int64 // bytes of the writable store
	OOMKills                        int64
}

// EventKind is what happened to a box.
type EventKind string

const (
	MemoryWarning EventKind = "memory_warning" // Percent is 80 or 95
	OOMKill       EventKind = "oom_kill"
)

// Event is something the trainer wants to know while the box runs.
type Event struct {
	Kind    EventKind
	Percent int
	Time    time.Time
}

// Record is what a runtime needs to open a box again. Data is the runtime's
// own, versioned JSON without secrets.
type Record struct {
	ID      string          `json:"id"`
	Runtime string          `json:"runtime"`
	Data    json.RawMessage `json:"data"`
}

// Orphan is something that Sweep found and removed.
type Orphan struct {
	ID   string // box id where known
	Kind string // process, cgroup, mount, directory, loop
	What string // path or pid
	Err  error  // nil when it is gone now
}

// Probe is what a runtime can do here.
type Probe struct {
	OK       bool
	Features map[string]string // feature → how ("erofs-file": "yes", "store-disk": "loop-ext4", "cgroup": "v1-hybrid")
	Missing  []Missing
}

// Missing names a feature that this machine lacks and what to do about it.
type Missing struct {
	Feature, Reason, Remedy string
	Fatal                   bool
}
