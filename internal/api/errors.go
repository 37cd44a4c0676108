package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/proto"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// codes is the one table from reasons to wire codes and HTTP statuses of plain
// HTTP. Connect clients see Connect's own statuses.
var codes = map[errdefs.Reason]struct {
	code   connect.Code
	status int
}{
	errdefs.InvalidArgument:  {connect.CodeInvalidArgument, 400},
	errdefs.NotFound:         {connect.CodeNotFound, 404},
	errdefs.AlreadyExists:    {connect.CodeAlreadyExists, 409},
	errdefs.Conflict:         {connect.CodeFailedPrecondition, 409},
	errdefs.IdempotencyClash: {connect.CodeAlreadyExists, 409},
	errdefs.OpUnknown:        {connect.CodeNotFound, 404},
	errdefs.Unauthenticated:  {connect.CodeUnauthenticated, 401},
	errdefs.Forbidden:        {connect.CodePermissionDenied, 403},
	errdefs.Unsupported:      {connect.CodeUnimplemented, 501},
	errdefs.QueueFull:        {connect.CodeResourceExhausted, 429},
	errdefs.NodeFull:         {connect.CodeResourceExhausted, 429},
	errdefs.QuotaExceeded:    {connect.CodeResourceExhausted, 429},
	errdefs.RateLimited:      {connect.CodeResourceExhausted, 429},
	errdefs.TooLarge:         {connect.CodeResourceExhausted, 413},
	errdefs.DiskFull:         {connect.CodeResourceExhausted, 507},
	errdefs.OutOfMemory:      {connect.CodeResourceExhausted, 507},
	errdefs.TimedOut:         {connect.CodeDeadlineExceeded, 504},
	errdefs.Canceled:         {connect.CodeCanceled, 499},
	errdefs.BoxGone:          {connect.CodeFailedPrecondition, 410},
	errdefs.BoxTampered:      {connect.CodeAborted, 409},
	errdefs.OwnerLost:        {connect.CodeFailedPrecondition, 410},
	errdefs.Unavailable:      {connect.CodeUnavailable, 503},
	errdefs.Internal:         {connect.CodeInternal, 500},
}

func codeOf(r errdefs.Reason) connect.Code {
	if c, ok := codes[r]; ok {
		return c.code
	}
	return connect.CodeUnknown
}

func statusOf(r errdefs.Reason) int {
	if c, ok := codes[r]; ok {
		return c.status
	}
	return http.StatusInternalServerError
}

// told is what a caller learns of an error: who does not run the server learns nothing of its files.
func told(ctx context.Context, e *errdefs.Error) *errdefs.Error {
	if callerOf(ctx).operator {
		return e
	}
	return errdefs.Public(e)
}

// typed gives the product's error for whatever a handler, a codec or the RPC
// library returned. What nobody foresaw becomes an internal error without its
// text, which may hold anything; the log has it, under the request's id.
func (a *API) typed(ctx context.Context, err error) *errdefs.Error {
	if e, ok := errors.AsType[*errdefs.Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) && a.closing.Load() {
		return errStopping()
	}
	var tooLarge *http.MaxBytesError
	ce, isConnect := errors.AsType[*connect.Error](err)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return errdefs.From(err)
	case errors.As(err, &tooLarge), isConnect && ce.Code() == connect.CodeResourceExhausted:
		return errdefs.Limitf(errdefs.TooLarge, "request body", "send less, or send bytes by plain HTTP", "is larger than this call takes")
	case isConnect && !ce.IsRemote():
		return fromConnect(ce)
	}
	e := errdefs.Infraf(errdefs.ScopePlatform, errdefs.Internal, "request "+callerOf(ctx).request, "the server failed in a way that it did not foresee; its log has the cause")
	e.Cause = err
	return e
}

// fromConnect types what the RPC library itself refuses.
func fromConnect(ce *connect.Error) *errdefs.Error {
	var r errdefs.Reason
	switch ce.Code() {
	case connect.CodeCanceled:
		return errdefs.From(context.Canceled)
	case connect.CodeDeadlineExceeded:
		return errdefs.From(context.DeadlineExceeded)
	case connect.CodeUnimplemented:
		r = errdefs.Unsupported
	case connect.CodeInvalidArgument:
		r = errdefs.InvalidArgument
	default:
		e := errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "request", "%s", ce.Message())
		e.Cause = ce
		return e
	}
	return errdefs.Userf(r, "request", "see proto/dsec/v1 for what can be called and how", "%s", ce.Message())
}

func errStopping() *errdefs.Error {
	return errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "server", "it is stopping; operations in boxes go on")
}

func wireError(e *errdefs.Error) *dsecv1.Error {
	if e == nil {
		return nil
	}
	return &dsecv1.Error{
		Class: string(e.Class), Reason: string(e.Reason), Scope: string(e.Scope), Object: utf8Text(e.Object),
		Message: utf8Text(e.Message), Remedy: utf8Text(e.Remedy), Retryable: e.Retryable,
	}
}

// connectError carries e over the wire: the whole text as message, e as detail.
func connectError(e *errdefs.Error) *connect.Error {
	w := wireError(e)
	out := connect.NewError(codeOf(e.Reason), utf8Text(e.Error())).WithCause(e)
	if d, err := connectproto.NewErrorDetail(w); err == nil {
		out = out.WithDetail(d)
	}
	return out
}

// waits tells how many seconds a client should wait before it comes again.
func waits(e *errdefs.Error) string {
	switch {
	case !e.Retryable:
		return ""
	case e.Reason == errdefs.RateLimited, e.Reason == errdefs.Unavailable, e.Reason == errdefs.QueueFull, e.Reason == errdefs.NodeFull:
		return "1"
	}
	return ""
}

// refuse answers a request that reaches no handler, in the client's protocol.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := told(r.Context(), a.typed(r.Context(), err))
	if s := waits(e); s != "" {
		w.Header().Set("Retry-After", s)
	}
	if e.Reason == errdefs.Unauthenticated {
		w.Header().Set("Www-Authenticate", `Bearer realm="dsec"`)
	}
	if r.Method == http.MethodPost && a.rpcErr.IsSupported(r) {
		a.rpcErr.Write(w, r, connectError(e))
		return
	}
	writeError(w, e)
}

// writeError answers plain HTTP with the same JSON that Connect sends.
func writeError(w http.ResponseWriter, e *errdefs.Error) {
	type detail struct {
		Type  string        `json:"type"`
		Value string        `json:"value"`
		Debug *dsecv1.Error `json:"debug"`
	}
	wire := wireError(e)
	raw, err := proto.Marshal(wire)
	if err != nil {
		raw = nil
	}
	body, err := json.Marshal(struct {
		Code    string   `json:"code"`
		Message string   `json:"message"`
		Details []detail `json:"details"`
	}{codeOf(e.Reason).String(), utf8Text(e.Error()), []detail{{"dsec.v1.Error", connect.EncodeBinaryHeader(raw), wire}}})
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(statusOf(e.Reason))
	w.Write(append(body, '\n'))
}
