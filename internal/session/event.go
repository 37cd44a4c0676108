package session

import (
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Event is something that befalls a session: one of the types below.
type Event interface{ event() string }

type (
	// Place puts a PENDING session on a node.
	Place struct{ Node string }
	// Refuse takes a placement back: the node had no room, or the server that ordered it is gone and
	// the node does not have the box.
	Refuse struct{ Reason string }
	// Start says that the box runs.
	Start struct {
		Box        string
		Pooled     bool
		ColdReason string
	}
	// Suspend and Resume ask; Frozen and Thawed say that it was done.
	Suspend struct{ Reason string }
	Resume  struct{}
	Frozen  struct{}
	Thawed  struct{}
	// Audit says that max_runtime passed and the node ended what ran in the box.
	Audit struct{ Err *errdefs.Error }
	// Stop asks for a good end; Fail for a bad one. A session that never ran cannot
	// end well: Stop fails it as cancelled.
	Stop struct{ Reason string }
	Fail struct{ Err *errdefs.Error }
	// SetDeadline moves the deadline to At, which is Lifetime away, and sets the action if Then is not
	// empty. With Extend the deadline moves only to later. Without Lifetime there is none any more.
	SetDeadline struct {
		At       time.Time
		Lifetime time.Duration
		Then     Action
		Extend   bool
	}
	// Expire says that the clock has reached the deadline, at which Then is to be done. It changes
	// nothing if the deadline was moved meanwhile.
	Expire struct{ Then Action }
	// Reclaimed is the node's word that nothing of the box is left.
	Reclaimed struct{}
	// Fence says that the node is lost and can never run the box again.
	Fence struct{ Err *errdefs.Error }
)

func (Place) event() string       { return "place" }
func (Refuse) event() string      { return "refuse" }
func (Start) event() string       { return "start" }
func (Suspend) event() string     { return "suspend" }
func (Resume) event() string      { return "resume" }
func (Frozen) event() string      { return "frozen" }
func (Thawed) event() string      { return "thawed" }
func (Audit) event() string       { return "audit" }
func (Stop) event() string        { return "stop" }
func (Fail) event() string        { return "fail" }
func (SetDeadline) event() string { return "set_deadline" }
func (Expire) event() string      { return "expire" }
func (Reclaimed) event() string   { return "reclaimed" }
func (Fence) event() string       { return "fence" }

// Effect is what the caller has to do after an event. Effects are idempotent commands.
type Effect uint8

const (
	CreateBox  Effect = iota + 1 // make the box on Row.Node
	DestroyBox                   // reclaim the box (or what a creation left), then deliver Reclaimed
	FreezeBox                    // then deliver Frozen
	ThawBox                      // then deliver Thawed
	Enqueue                      // wait for room
	Finished                     // the session has ended: give back quota, wake those that wait
)

func (e Effect) String() string {
	return [...]string{"none", "create_box", "destroy_box", "freeze_box", "thaw_box", "enqueue", "finished"}[e]
}
