// Package errdefs is the one vocabulary of failure of the product: every error
// that leaves a component is an *Error with a class, a stable reason, a scope,
// the object it is about and the remedy. It maps to wire codes only at the edge
// (internal/api) and to exit codes only in internal/cli.
package errdefs

import (
	"context"
	"errors"
	"fmt"
)

// Class says whose fault a failure is. Trainers mask rewards by it.
type Class string

const (
	// User: the request is wrong (unknown program, bad path, invalid spec).
	User Class = "user"
	// Limit: a declared limit was reached (memory, disk, output, quota, queue).
	Limit Class = "limit"
	// Policy: the action is forbidden, or the box was tampered with.
	Policy Class = "policy"
	// Infrastructure: the platform failed. It needs evidence from outside the
	// box: nothing that an agent does inside its box may produce it.
	Infrastructure Class = "infrastructure"
)

// Scope says how far the failure reaches.
type Scope string

const (
	ScopeBox      Scope = "box"
	ScopeNode     Scope = "node"
	ScopePlatform Scope = "platform"
)

// Reason is a stable, machine-readable cause. Clients may switch on it, so a
// reason is never renamed.
type Reason string

const (
	InvalidArgument  Reason = "invalid_argument"
	NotFound         Reason = "not_found"
	AlreadyExists    Reason = "already_exists"
	Conflict         Reason = "conflict"          // wrong state for the request, compare-and-swap lost
	IdempotencyClash Reason = "idempotency_clash" // same key or op id, other request
	OpUnknown        Reason = "op_unknown"        // the op id was evicted or never seen
	Unauthenticated  Reason = "unauthenticated"
	Forbidden        Reason = "forbidden"
	Unsupported      Reason = "unsupported" // known, but not available here or yet
	QueueFull        Reason = "queue_full"
	NodeFull         Reason = "node_full"
	QuotaExceeded    Reason = "quota_exceeded" // a project has as many live sessions as it may
	RateLimited      Reason = "rate_limited"
	TooLarge         Reason = "too_large"
	DiskFull         Reason = "disk_full"
	OutOfMemory      Reason = "out_of_memory"
	TimedOut         Reason = "timed_out"
	Canceled         Reason = "canceled"
	BoxGone          Reason = "box_gone"     // the session's box ended
	BoxTampered      Reason = "box_tampered" // the guest died, stalled or broke the protocol on a healthy node
	OwnerLost        Reason = "owner_lost"   // the process that owned it was silent for too long
	Unavailable      Reason = "unavailable"  // starting, stopping, or a dependency is away
	Internal         Reason = "internal"
)

// Error is the product's error. The zero value is not useful; make one with
// New or one of the class constructors. It is immutable once returned.
type Error struct {
	Class     Class
	Reason    Reason
	Scope     Scope
	Object    string // what it is about: "session abc", "field fs.writable_dirs[0]", "template base"
	Message   string // the cause, one sentence, no trailing dot
	Remedy    string // what to do next; may be empty only for Infrastructure
	Retryable bool
	Cause     error // for logs; never sent over the wire
}

func (e *Error) Error() string {
	s := e.Message
	if e.Object != "" {
		s = e.Object + ": " + s
	}
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// Unwrap gives the cause, so that errors.Is and errors.As see through it.
func (e *Error) Unwrap() error { return e.Cause }

// Is matches another *Error by reason, so that errors.Is(err, errdefs.ErrNotFound) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Reason == e.Reason && t.Message == ""
}

// Targets for errors.Is.
var (
	ErrNotFound  = &Error{Reason: NotFound}
	ErrConflict  = &Error{Reason: Conflict}
	ErrBoxGone   = &Error{Reason: BoxGone}
	ErrNodeFull  = &Error{Reason: NodeFull}
	ErrOpUnknown = &Error{Reason: OpUnknown}
)

// Userf makes a User error about object.
func Userf(r Reason, object, remedy, format string, args ...any) *Error {
	return newf(User, ScopePlatform, r, object, remedy, format, args...)
}

// Limitf makes a Limit error about object.
func Limitf(r Reason, object, remedy, format string, args ...any) *Error {
	return newf(Limit, ScopeBox, r, object, remedy, format, args...)
}

// Policyf makes a Policy error about object.
func Policyf(r Reason, object, remedy, format string, args ...any) *Error {
	return newf(Policy, ScopeBox, r, object, remedy, format, args...)
}

// Infraf makes a retryable Infrastructure error about object; a %w verb sets the cause.
func Infraf(scope Scope, r Reason, object, format string, args ...any) *Error {
	e := newf(Infrastructure, scope, r, object, "", format, args...)
	e.Retryable = true
	return e
}

func newf(c Class, s Scope, r Reason, object, remedy, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Class: c, Scope: s, Reason: r, Object: object, Remedy: remedy, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// From gives the *Error in err's chain, or wraps err: a context's end becomes
// canceled or timed_out (class user), anything else an internal
// infrastructure error of the platform. From(nil) is nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &Error{Class: User, Reason: Canceled, Scope: ScopePlatform, Message: "the request was cancelled by its caller", Remedy: "send it again", Cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Class: User, Reason: TimedOut, Scope: ScopePlatform, Message: "the request's deadline passed", Remedy: "give it more time", Retryable: true, Cause: err}
	}
	return &Error{Class: Infrastructure, Reason: Internal, Scope: ScopePlatform, Message: err.Error(), Retryable: true, Cause: err}
}
