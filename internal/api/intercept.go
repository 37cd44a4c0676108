package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// intercept surrounds every RPC: panics become errors, errors get their wire
// form, and the outcome is counted and logged.
func (a *API) intercept(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) (err error) {
		m := a.metrics.of(spec.Procedure)
		start := time.Now()
		m.running.Inc()
		defer func() {
			if p := recover(); p != nil {
				err = a.panicked(ctx, p)
			}
			m.running.Dec()
			if err == nil {
				m.done(codeOK, start)
				return
			}
			e := a.typed(ctx, err)
			m.done(codeOf(e.Reason), start)
			a.logFailure(ctx, spec.Procedure, e, start)
			if info, ok := connect.CallInfoForServerContext(ctx); ok {
				if s := waits(e); s != "" {
					info.ResponseHeader().Set("Retry-After", s)
				}
			}
			err = connectError(told(ctx, e))
		}()
		if a.refusing() && makesBoxes(spec.Procedure) {
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "server", "it is draining and makes no sessions")
		}
		return next(ctx, spec, stream)
	}
}

func makesBoxes(procedure string) bool {
	return procedure == dsecv1connect.SessionServiceCreateProcedure || procedure == dsecv1connect.SessionServiceCreateStreamProcedure
}

// panicked turns a panic into an infrastructure error and logs where it was.
func (a *API) panicked(ctx context.Context, p any) error {
	a.metrics.panics.Inc()
	c := callerOf(ctx)
	a.log.LogAttrs(ctx, slog.LevelError, "handler panicked", slog.String("request", c.request),
		slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
	return errdefs.Infraf(errdefs.ScopePlatform, errdefs.Internal, "request "+c.request, "the server failed; its log has the cause")
}

// catch is the last net, for plain HTTP and what stands before the handlers.
func (a *API) catch(w http.ResponseWriter, r *http.Request, id string) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { // on purpose: the client must see a broken transfer
		panic(p)
	}
	writeError(w, errdefs.From(a.panicked(context.WithValue(r.Context(), callerKey{}, caller{request: id}), p)))
}

// logFailure logs the platform's failures as errors, and everybody else's for
// those who look for them. Requests are not logged: they hold secrets.
func (a *API) logFailure(ctx context.Context, what string, e *errdefs.Error, start time.Time) {
	level := slog.LevelDebug
	if e.Class == errdefs.Infrastructure {
		level = slog.LevelError
		if e.Reason == errdefs.Unavailable {
			level = slog.LevelInfo
		}
	}
	if !a.log.Enabled(ctx, level) {
		return
	}
	c := callerOf(ctx)
	attrs := []slog.Attr{
		slog.String("call", what), slog.String("project", c.project), slog.String("request", c.request),
		slog.String("class", string(e.Class)), slog.String("reason", string(e.Reason)), slog.String("error", e.Error()),
		slog.Duration("took", time.Since(start)),
	}
	if e.Cause != nil {
		attrs = append(attrs, slog.String("cause", e.Cause.Error()))
	}
	a.log.LogAttrs(ctx, level, "request failed", attrs...)
}
