package control

import (
	"context"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/spec"
)

// API is the control plane as the gateway sees it. *Control implements it.
// project is the caller's; a session of another project is NotFound.
type API interface {
	// Create makes count sessions and answers item by item, in order, when each is
	// RUNNING, FAILED or (with NoWait) placed in the queue. Idempotent by key.
	// Without a key, the end of ctx cancels and leaves nothing; with one it only
	// ends the wait.
	Create(ctx context.Context, project string, req CreateRequest) ([]CreateResult, error)
	Get(ctx context.Context, project, id string) (*Session, error)
	// Wait returns when the session is in a phase at least as late as one of until.
	Wait(ctx context.Context, project, id string, until ...string) (*Session, error)
	// List pages by keyset; next is empty on the last page.
	List(ctx context.Context, project string, f Filter) (page []*Session, next string, err error)
	// Stop ends sessions by id, job, label, lease or idempotency key and returns when
	// each one's reclaim is acknowledged. Idempotent.
	Stop(ctx context.Context, project string, sel Selector, reason string) ([]StopResult, error)
	Suspend(ctx context.Context, project string, sel Selector) ([]StopResult, error)
	Resume(ctx context.Context, project string, sel Selector) ([]StopResult, error)
	// Guest gives the guest of a RUNNING session (a SUSPENDED one is resumed first);
	// it counts as activity until release.
	Guest(ctx context.Context, project, id string) (guest guestclient.API, release func(), err error)
	Inspect(ctx context.Context, project, id string) (*Inspect, error)
	Heartbeat(ctx context.Context, project, id string) error
}

// CreateRequest is a checked request; the spec has been merged with the
// template's defaults and resolved.
type CreateRequest struct {
	Key      string // idempotency key, per project, 24 h
	Digest   string // of the whole request, secrets included, hashed
	Count    int    // 1 … 32,768
	Template string // "name", "name@version"; empty: base
	Spec     spec.Sandbox
	Env      map[string]string // visible in inspect
	Secrets  map[string]string // reach the session's processes and nothing else
	Labels   map[string]string
	Job      string
	Code     []byte // tar (may be gzip or zstd compressed), unpacked into /workspace
	CodeDir  string
	Priority string
	NoPool   bool
	NoWait   bool   // answer when queued or placed
	Lease    string // of the owner; empty: none
	// Lifetime is how long after it began to RUN the session's time is up, whatever it does; 0: no
	// deadline. AtDeadline is what is done then: "stop", which is also meant by nothing, or "suspend".
	Lifetime   time.Duration
	AtDeadline string
	// OnItem, if set, is called once for each item as soon as it is answered, from any
	// goroutine but never from two at once, and always before Create returns. It must not block for long.
	OnItem func(index int, r CreateResult)
}

// CreateResult is one item's outcome.
type CreateResult struct {
	Session *Session
	Err     *errdefs.Error
}

// Session as clients see it. Read-only copy.
type Session struct {
	ID, Project, Job                 string
	Template                         string
	Labels, Env                      map[string]string
	Spec                             spec.Sandbox
	Phase                            string // PENDING SCHEDULED RUNNING SUSPENDED COMPLETED FAILED
	Desired, Reclaim                 string
	Reason                           string // why it is where it is: queue position, refusal, end
	Error                            *errdefs.Error
	Node, Box                        string
	Pooled                           bool
	ColdReason                       string
	Version                          int64
	Created, Started, Ended, Updated time.Time
	Lease                            string // of its owner, if it has or had one
	// Deadline is zero for none, and before RUNNING; it does not act while SUSPENDED.
	Deadline   time.Time
	Lifetime   time.Duration
	AtDeadline string
}

// Inspect adds the box's live figures.
type Inspect struct {
	Session *Session
	Box     any // *node.Inspect
}

// Filter of List.
type Filter struct {
	Phases []string
	Job    string
	Lease  string
	Labels map[string]string
	Limit  int // 1 … 1000, default 100
	Page   string
	Newest bool // newest first (default oldest first)
}

// Selector of Stop, Suspend, Resume: exactly one of IDs, Job, Labels, Key, Lease, All.
type Selector struct {
	IDs    []string
	Job    string
	Labels map[string]string
	Key    string
	Lease  string
	All    bool
}

// StopResult is one session's outcome.
type StopResult struct {
	ID      string
	Session *Session
	Err     *errdefs.Error
}

// Keys are the API keys of projects. Only hashes are kept.
type Keys interface {
	// Lookup gives the project of a live key; Unauthenticated for anything else,
	// in the same words and after the same work. It is on every request's path: answer from memory.
	Lookup(ctx context.Context, key string) (project string, err error)
	// CreateKey makes a key; secret (e2b_<hex>) is never shown again.
	CreateKey(ctx context.Context, project, name string) (k Key, secret string, err error)
	// ListKeys gives the keys of project, or of all when it is empty, oldest first.
	ListKeys(ctx context.Context, project string) ([]Key, error)
	// RevokeKey ends a key at once. Idempotent; NotFound for an id that never was.
	RevokeKey(ctx context.Context, id string) error
}

// Key is an API key as it can be shown.
type Key struct {
	ID, Project, Name string
	Hint              string // the secret's last four characters
	Created, Revoked  time.Time
}
