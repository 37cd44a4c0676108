package envd

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/dsec-platform/dsec/gen/filesystem/filesystemconnect"
	"github.com/dsec-platform/dsec/gen/process/processconnect"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
)

// Sandbox is the sandbox that a request means.
type Sandbox struct {
	ID string
	// Token opens it and signs URLs of its files. It is told to nobody here.
	Token string
	// Env are variables of all processes, each NAME=value; a request's own count more.
	Env []string
	// User is who runs processes and owns files of requests that name nobody; empty: the guest's own default.
	User string
	// Workdir is where processes start that name no directory; empty: the user's home.
	Workdir string
	// Guest gives its guest; it counts as activity until release. A paused sandbox that does not
	// resume by itself has reason conflict.
	Guest func(ctx context.Context) (guest guestclient.API, release func(), err error)
}

// Config of a handler.
type Config struct {
	// Sandbox gives the sandbox of a request from its context. It exists; the handler asks for the token.
	Sandbox func(ctx context.Context) Sandbox
	Logger  *slog.Logger // nil: slog.Default
}

// Handler is the agent of all sandboxes. It is safe for concurrent use and must be closed.
type Handler struct {
	cfg      Config
	log      *slog.Logger
	routes   *http.ServeMux
	known    known
	watchers watchers
	listings atomic.Int64 // bytes of large ones that are being made
}

// headerToken is how SDKs send a sandbox's token.
const headerToken = "X-Access-Token"

// New makes a handler.
func New(cfg Config) *Handler {
	h := &Handler{cfg: cfg, log: cfg.Logger, routes: http.NewServeMux()}
	if h.log == nil {
		h.log = slog.Default()
	}
	h.known.init()
	h.watchers.init()
	h.routes.HandleFunc("GET /health", h.plain(h.health))
	h.routes.HandleFunc("GET /files", h.plain(h.download))
	h.routes.HandleFunc("POST /files", h.plain(h.upload))
	h.routes.HandleFunc("/", h.plain(h.unknown))
	h.mountServices()
	return h
}

// Close ends the watchers.
func (h *Handler) Close() { h.watchers.close() }

func (h *Handler) mountServices() {
	s := connect.NewServer(h.intercept)
	processconnect.RegisterProcessHandler(s, &processes{h})
	filesystemconnect.RegisterFilesystemHandler(s, &filesystem{h})
	connecthttp.Mount(h.routes, s, connecthttp.WithCodecs(newCodec()), connecthttp.WithConditionalOptions(func(spec connect.Spec) []connecthttp.Option {
		if spec.Procedure == processconnect.ProcessStreamInputProcedure {
			return []connecthttp.Option{connecthttp.WithReadMaxBytes(e2b.MaxInput)}
		}
		return []connecthttp.Option{connecthttp.WithReadMaxBytes(e2b.MaxMessage)}
	}))
}

// ServeHTTP serves a request to the agent's port of a box.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Connect-Timeout-Ms") == "0" { // to the SDKs: no time-out
		r.Header.Del("Connect-Timeout-Ms")
	}
	h.routes.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sandboxKey{}, h.cfg.Sandbox(r.Context()))))
}

type sandboxKey struct{}

func sandboxOf(ctx context.Context) Sandbox {
	s, _ := ctx.Value(sandboxKey{}).(Sandbox)
	return s
}

// tokenFits tells whether the request carries the sandbox's token.
func tokenFits(s *Sandbox, given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(s.Token)) == 1
}

func unauthenticated(s *Sandbox) error {
	return errdefs.Userf(errdefs.Unauthenticated, "sandbox "+s.ID, "send the envdAccessToken of its creation as "+headerToken, "the request has no valid access token")
}

// intercept asks for the token, and gives errors the form that the SDKs read.
func (h *Handler) intercept(next connect.ServerFunc) connect.ServerFunc {
	return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) (err error) {
		defer func() {
			if p := recover(); p != nil {
				h.log.ErrorContext(ctx, "handler panicked", "call", spec.Procedure, "panic", p, "stack", string(debug.Stack()))
				err = errdefs.Infraf(errdefs.ScopePlatform, errdefs.Internal, "request", "the server failed; its log has the cause")
			}
			if err != nil {
				h.logFailure(ctx, spec.Procedure, err)
				err = connectError(ctx, err)
			}
		}()
		info, ok := connect.CallInfoForServerContext(ctx)
		if s := sandboxOf(ctx); !ok || !tokenFits(&s, info.RequestHeader().Get(headerToken)) {
			return unauthenticated(&s)
		}
		return next(ctx, spec, stream)
	}
}

// logFailure logs the platform's failures. Requests are not logged: they hold secrets.
func (h *Handler) logFailure(ctx context.Context, what string, err error) {
	e := errdefs.From(err)
	if ce, ok := errors.AsType[*connect.Error](err); ok { // the library's own: most are the client's affair
		e = fromConnect(ce)
	}
	if e.Class == errdefs.Infrastructure && ctx.Err() == nil {
		h.log.LogAttrs(ctx, slog.LevelError, "request failed", slog.String("call", what), slog.String("sandbox", sandboxOf(ctx).ID),
			slog.String("reason", string(e.Reason)), slog.String("error", e.Error()))
	}
}
