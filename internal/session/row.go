package session

import (
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Phase is where a session is in its life.
type Phase string

const (
	Pending   Phase = "PENDING"
	Scheduled Phase = "SCHEDULED"
	Running   Phase = "RUNNING"
	Suspended Phase = "SUSPENDED"
	Completed Phase = "COMPLETED"
	Failed    Phase = "FAILED"
)

// Phases in the order of a life.
var Phases = []Phase{Pending, Scheduled, Running, Suspended, Completed, Failed}

// Terminal tells whether nothing can happen any more.
func (p Phase) Terminal() bool { return p == Completed || p == Failed }

// Valid tells whether p is a phase.
func (p Phase) Valid() bool { return p.rank() >= 0 }

// AtLeast tells whether p is as late in a life as q. RUNNING and SUSPENDED are
// equally late, as are COMPLETED and FAILED.
func (p Phase) AtLeast(q Phase) bool { return p.rank() >= q.rank() }

// Reached tells whether a session that is in p is in, or past, q. A session that has
// ended is past everything; a suspended one has run.
func (p Phase) Reached(q Phase) bool {
	return p == q || p.Terminal() || p.rank() > q.rank() || p == Suspended && q == Running
}

func (p Phase) rank() int {
	switch p {
	case Pending:
		return 0
	case Scheduled:
		return 1
	case Running, Suspended:
		return 2
	case Completed, Failed:
		return 3
	}
	return -1
}

// Desired is what was asked for.
type Desired string

const (
	WantRunning   Desired = "running"
	WantSuspended Desired = "suspended"
	// WantAudit keeps the box with its evidence readable: max_runtime has passed, its
	// processes were ended, nothing executes any more, and only the end can follow.
	WantAudit   Desired = "audit"
	WantStopped Desired = "stopped"
)

// Reclaim is how far the removal of the box has come.
type Reclaim string

const (
	ReclaimNone    Reclaim = "none"
	ReclaimPending Reclaim = "pending"
	ReclaimAcked   Reclaim = "acked"
	ReclaimFenced  Reclaim = "fenced"
)

// Row is the state of one session. It is a plain value: Apply gives a new one.
type Row struct {
	ID      string
	Version int64
	Phase   Phase
	Desired Desired
	Reclaim Reclaim
	Reason  string         // why it is where it is
	Error   *errdefs.Error // the verdict of a session that will be, or is, FAILED
	Node    string
	Box     string
	// How the box came about.
	Pooled     bool
	ColdReason string
	// Created never changes; Started is zero before RUNNING, Ended before the end.
	Created, Started, Ended, Updated time.Time
	// Deadline is when the session's time is up, whatever it does; zero: never, or not RUNNING yet. It
	// does not act on a session that is suspended.
	Deadline time.Time
	// Lifetime is how far away the deadline was when it was set. A session that begins to run, or is
	// resumed after its deadline, has it anew. Zero: there is no deadline.
	Lifetime   time.Duration
	AtDeadline Action
}

// Action is what is done to a session whose time is up.
type Action string

const (
	ActStop    Action = "stop"
	ActSuspend Action = "suspend"
)

// New is a session just asked for.
func New(id string, now time.Time) Row {
	return Row{ID: id, Version: 1, Phase: Pending, Desired: WantRunning, Reclaim: ReclaimNone, Created: now, Updated: now}
}

// Ending tells whether the session's end has been decided but not reached.
func (r Row) Ending() bool { return r.Desired == WantStopped && !r.Phase.Terminal() }
