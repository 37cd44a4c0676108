package guestclient

import (
	"context"
	"errors"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// guestReasons are what a guest may give as the reason of a failure. Nothing
// that an agent can make its guest say becomes a failure of the platform.
var guestReasons = map[errdefs.Reason]bool{
	errdefs.InvalidArgument: true, errdefs.NotFound: true, errdefs.AlreadyExists: true, errdefs.Conflict: true,
	errdefs.IdempotencyClash: true, errdefs.OpUnknown: true, errdefs.Forbidden: true, errdefs.Unsupported: true,
	errdefs.RateLimited: true, errdefs.TooLarge: true, errdefs.DiskFull: true, errdefs.OutOfMemory: true,
	errdefs.TimedOut: true, errdefs.Canceled: true, errdefs.BoxTampered: true, errdefs.Unavailable: true,
}

// asError makes any failure of a stream an *errdefs.Error; nil stays nil.
func asError(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*errdefs.Error](err); ok {
		return e
	}
	if w, ok := errors.AsType[*guestproto.WireError](err); ok {
		return fromWire(w)
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return errdefs.From(err)
	case errors.Is(err, mux.ErrClosed):
		return errdefs.Userf(errdefs.BoxGone, "box", "create a new session", "the connection to the box was closed")
	case errors.Is(err, guestproto.ErrTooLong):
		return errdefs.Userf(errdefs.TooLarge, "request", "send a smaller request", "the request is over the guest protocol's limit")
	}
	if errors.Is(err, mux.ErrProtocol) {
		return tampered("%w", err)
	}
	// What the system says of a socket names paths of the node: for logs only.
	e := tampered("the connection to the guest was lost")
	e.Cause = err
	return e
}

// fromWire takes over what a guest says of a failure, as far as it may say it.
func fromWire(w *guestproto.WireError) *errdefs.Error {
	class, reason := errdefs.Class(w.Class), errdefs.Reason(w.Reason)
	if class != errdefs.User && class != errdefs.Limit && class != errdefs.Policy {
		class = errdefs.Policy
	}
	if !guestReasons[reason] {
		return tampered("the guest gave an impossible reason %q", w.Reason)
	}
	text := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	return &errdefs.Error{Class: class, Reason: reason, Scope: errdefs.ScopeBox, Object: text(w.Object), Message: text(w.Message), Remedy: text(w.Remedy)}
}

// tampered is the failure of a guest that died, stalled or broke the protocol.
func tampered(format string, args ...any) *errdefs.Error {
	return errdefs.Policyf(errdefs.BoxTampered, "guest", "stop the session and create a new one", format, args...)
}
