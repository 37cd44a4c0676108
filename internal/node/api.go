package node

import (
	"context"
	"io"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// API is what the control plane and the gateway use of a node. *Node
// implements it in process; a fleet puts a remote one behind the same interface.
type API interface {
	// Create admits, makes or claims a box and binds it to the session. It is
	// idempotent by (session, version). Node full: errdefs.NodeFull.
	Create(ctx context.Context, req CreateRequest) (*Bound, error)
	// Destroy reclaims the session's box and returns when nothing of it is left
	// (the acknowledgement that a terminal state needs). Idempotent, and
	// succeeds for a session the node never had.
	Destroy(ctx context.Context, session string, reason string) error
	// Suspend freezes the box's processes; Resume thaws them.
	Suspend(ctx context.Context, session string) error
	Resume(ctx context.Context, session string) error
	// Acquire gives the guest of a session's box and counts as activity until release is called.
	Acquire(ctx context.Context, session string) (guest guestclient.API, release func(), err error)
	// SwitchNetwork puts another policy in force; when it returns, what that does not allow is cut.
	SwitchNetwork(ctx context.Context, session string, change NetworkChange) (NetworkState, error)
	// CheckNetwork says what would be decided about a destination now. Nothing is sent.
	CheckNetwork(ctx context.Context, session, host string, port uint16, transport policy.Protocol) (policy.Result, error)
	// Inventory lists what runs, for reconciliation after a restart and for `ps`.
	Inventory(ctx context.Context) ([]Inventory, error)
	Inspect(ctx context.Context, session string) (*Inspect, error)
	Stats(ctx context.Context) Stats
	// Events delivers what happens to boxes without being asked: box lost, idle
	// clock, run-time clock, memory warnings. One reader: the control plane.
	Events() <-chan Event
	// SetDraining refuses new boxes; live ones go on.
	SetDraining(on bool)
}

// CreateRequest binds a box to a session.
type CreateRequest struct {
	Session string // public id
	Version int64  // of the session row; commands are idempotent by it
	Project string
	Root    runtime.Root
	// Config of the box; ID is chosen by the node.
	RootWritable bool
	Claim        runtime.Claim
	// Code is a tar, plain or compressed (package archive), put into CodeDir before the session is RUNNING; nil for none.
	Code    io.Reader
	CodeDir string
	// Start is run before the session is RUNNING; zero for nothing.
	Start Start
	// Network are the policies of the box's way out; nil: it has none. Preflight is when its names are looked at.
	Network *policy.Phases
	// Trusts says that what the box is made with makes it trust its project's authority.
	Trusts     bool
	Preflight  Preflight
	MaxIdle    time.Duration // 0: none
	MaxRuntime time.Duration // 0: none
	// MaxSuspended bounds one suspension; 0: none.
	MaxSuspended time.Duration
	// Shared by the creates of one request; nil: there is no other.
	Shared *Shared
	// Runtime is the spec's runtime field.
	Runtime string
	NoPool  bool
}

// Preflight says what is tried of a network before the session has its box.
type Preflight int

// What a preflight tries: that names resolve; that their ports take a connection, too; nothing.
const (
	PreflightResolve Preflight = iota
	PreflightReach
	PreflightOff
)

// NetworkChange is another policy for a session: a phase of its network ("": the policy outside of
// the phases), or a whole network in place of its own.
type NetworkChange struct {
	Phase   string
	Network *policy.Phases
}

// Bound says what the session got.
type Bound struct {
	Box        string
	Pooled     bool
	ColdReason string                   // why not from the pool; empty when pooled
	Timing     map[string]time.Duration // phase → duration; empty in the answer to a repeated create
}

// Inventory is one live box.
type Inventory struct {
	Session, Box string
	Version      int64
	Since        time.Time
	State        string    // a State: live, suspended, audit, destroying, lost
	Cause        EventKind // of a lost box: box_lost, box_tampered, box_failed
}

// Inspect is a box's details, without secrets.
type Inspect struct {
	Inventory
	Runtime, Template string
	Limits            runtime.Limits
	Usage             runtime.Usage
	LastActive        time.Time
	IdleFor           time.Duration
	RunningOps        int // -1: the guest did not answer; 0 also while nobody is connected to it
	Pooled            bool
	ColdReason        string
	Network           NetworkState
}

// EventKind is what happened to a bound box.
type EventKind string

const (
	BoxLost       EventKind = "box_lost"     // PID 1 is gone and nobody asked for it
	BoxTampered   EventKind = "box_tampered" // the guest broke the protocol; the box was destroyed
	BoxFailed     EventKind = "box_failed"   // the node could not keep the box: class infrastructure
	IdleExpired   EventKind = "idle_expired"
	SuspendedOver EventKind = "suspended_over" // suspended for MaxSuspended; told again while it is
	RuntimeOver   EventKind = "runtime_over"   // audit mode: its processes were killed, its files are readable
	MemWarning    EventKind = "memory_warning"
	OOMKilled     EventKind = "oom_kill"
	CapacityFree  EventKind = "capacity_free" // a refused placement may be tried again
)

// Event of a bound box.
type Event struct {
	Kind    EventKind
	Session string
	Box     string
	Percent int
	Time    time.Time
}

// Stats are the node's figures.
type Stats struct {
	MemTotal, MemPromised int64
	CPUTotal, CPUPromised float64
	Boxes, Pooled         int // of sessions; idle in the pool
	PoolTarget            int
	PoolHits, PoolMisses  int64
	Creating              int
	ColdReasons           map[string]int64
	OrphansRemoved        int64
}
