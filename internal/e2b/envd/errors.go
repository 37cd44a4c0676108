package envd

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// codes is the one table from reasons to the codes of Connect, as the SDKs read them.
var codes = map[errdefs.Reason]connect.Code{
	errdefs.InvalidArgument:  connect.CodeInvalidArgument,
	errdefs.NotFound:         connect.CodeNotFound,
	errdefs.OpUnknown:        connect.CodeNotFound,
	errdefs.AlreadyExists:    connect.CodeAlreadyExists,
	errdefs.IdempotencyClash: connect.CodeAlreadyExists,
	errdefs.Conflict:         connect.CodeFailedPrecondition,
	errdefs.Unauthenticated:  connect.CodeUnauthenticated,
	errdefs.Forbidden:        connect.CodePermissionDenied,
	errdefs.Unsupported:      connect.CodeUnimplemented,
	errdefs.QueueFull:        connect.CodeResourceExhausted,
	errdefs.NodeFull:         connect.CodeResourceExhausted,
	errdefs.QuotaExceeded:    connect.CodeResourceExhausted,
	errdefs.RateLimited:      connect.CodeResourceExhausted,
	errdefs.TooLarge:         connect.CodeResourceExhausted,
	errdefs.DiskFull:         connect.CodeResourceExhausted,
	errdefs.OutOfMemory:      connect.CodeResourceExhausted,
	errdefs.TimedOut:         connect.CodeDeadlineExceeded,
	errdefs.Canceled:         connect.CodeCanceled,
	errdefs.BoxGone:          connect.CodeUnavailable,
	errdefs.BoxTampered:      connect.CodeUnavailable,
	errdefs.Unavailable:      connect.CodeUnavailable,
	errdefs.Internal:         connect.CodeInternal,
}

// gone is how the SDKs tell that a sandbox is not running: by these words, with 502 or unavailable.
func gone(s *Sandbox, why string) *errdefs.Error {
	return errdefs.Userf(errdefs.BoxGone, "sandbox "+s.ID, "connect to it if it is paused, or create another", "it was not found: %s", why)
}

// guest gives the sandbox's guest.
func (s *Sandbox) guest(ctx context.Context) (guestAPI, func(), error) {
	g, release, err := s.Guest(ctx)
	if err == nil {
		return g, release, nil
	}
	switch e := errdefs.From(err); e.Reason {
	case errdefs.Conflict, errdefs.NotFound, errdefs.BoxGone, errdefs.BoxTampered:
		return nil, nil, gone(s, e.Message)
	default:
		return nil, nil, e
	}
}

// typed gives the product's error for whatever a handler or the RPC library returned.
func typed(ctx context.Context, err error) *errdefs.Error {
	if e, ok := errors.AsType[*errdefs.Error](err); ok {
		if e.Reason == errdefs.BoxGone || e.Reason == errdefs.BoxTampered {
			if s := sandboxOf(ctx); !strings.Contains(e.Message, "was not found") {
				return gone(&s, e.Error())
			}
		}
		// A user who does not exist may do nothing.
		if e.Reason == errdefs.NotFound && strings.HasPrefix(e.Object, "user ") {
			return errdefs.Userf(errdefs.Unauthenticated, e.Object, e.Remedy, "%s", e.Message)
		}
		return e
	}
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		return fromConnect(ce)
	}
	return errdefs.From(err)
}

// fromGuest takes over why a command could not be started, as far as a guest may say it.
func fromGuest(w *guestproto.WireError) *errdefs.Error {
	e := &errdefs.Error{Class: errdefs.Class(w.Class), Reason: errdefs.Reason(w.Reason), Scope: errdefs.ScopeBox, Object: w.Object, Message: w.Message, Remedy: w.Remedy}
	if e.Class != errdefs.User && e.Class != errdefs.Limit {
		e.Class = errdefs.Policy
	}
	if _, ok := codes[e.Reason]; !ok || e.Reason == errdefs.Internal {
		e.Reason = errdefs.InvalidArgument
	}
	return e
}

// fromConnect types what the RPC library itself refuses.
func fromConnect(ce *connect.Error) *errdefs.Error {
	switch ce.Code() {
	case connect.CodeCanceled:
		return errdefs.From(context.Canceled)
	case connect.CodeDeadlineExceeded:
		return errdefs.From(context.DeadlineExceeded)
	case connect.CodeInvalidArgument:
		return errdefs.Userf(errdefs.InvalidArgument, "request", "send the JSON form of the call", "%s", ce.Message())
	case connect.CodeResourceExhausted:
		return errdefs.Limitf(errdefs.TooLarge, "request", "send less at a time", "%s", ce.Message())
	case connect.CodeUnimplemented:
		return errdefs.Userf(errdefs.Unsupported, "request", "use a call of this server", "%s", ce.Message())
	}
	return errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "request", "%s", ce.Message())
}

func connectError(ctx context.Context, err error) *connect.Error {
	e := typed(ctx, err)
	code := connect.CodeUnknown
	if c, ok := codes[e.Reason]; ok {
		code = c
	}
	return connect.NewError(code, text(e)).WithCause(e)
}

// text is what a client is told; what nobody foresaw is in the log.
func text(e *errdefs.Error) string {
	if e.Reason == errdefs.Internal {
		return "the server failed in a way that it did not foresee; its log has the cause"
	}
	return strings.ToValidUTF8(errdefs.Public(e).Error(), "\uFFFD")
}

// plain makes a handler of a function that may fail.
func (h *Handler) plain(f func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := f(w, r)
		if err == nil {
			return
		}
		if _, begun := errors.AsType[*brokenTransfer](err); begun {
			// The client must see that it is not whole, and that the server is there.
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		h.logFailure(r.Context(), r.Method+" "+r.URL.Path, err)
		writeError(w, typed(r.Context(), err))
	}
}

// brokenTransfer is an error after the answer has begun.
type brokenTransfer struct{ err error }

func (b *brokenTransfer) Error() string { return "the transfer broke off: " + b.err.Error() }
func (b *brokenTransfer) Unwrap() error { return b.err }

// writeError answers plain HTTP as the facade does, but that a box which is gone is a bad gateway's affair to the SDKs.
func writeError(w http.ResponseWriter, e *errdefs.Error) {
	status := e2b.Status(e)
	if e.Reason == errdefs.BoxGone || e.Reason == errdefs.BoxTampered {
		status = http.StatusBadGateway
	}
	if e.Reason == errdefs.Internal {
		e = &errdefs.Error{Class: e.Class, Reason: e.Reason, Message: text(e)}
	}
	e2b.WriteErrorAs(w, status, e)
}
