package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/keyed"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/template"
)

// Config is what the gateway stands on. Control, Keys and Templates are needed.
type Config struct {
	Control control.API
	Keys    control.Keys
	// Leases are the owners of sessions; nil: LeaseService is not served.
	Leases    control.Leases
	Deadlines control.Deadlines // moves them; nil refuses
	Templates template.Store
	// Named gives what a project's create calls a template, images and its own aliases among them;
	// nil: what Templates has.
	Named func(ctx context.Context, project string, operator bool, ref string) (*template.Template, error)
	// Hidden tells that a template is another project's affair; nil: none is.
	Hidden func(project string, operator bool, name string) bool
	// Owner gives the project that a template belongs to and what that calls it, where the caller may know; empty: the
	// node's. nil: all are the node's.
	Owner func(project string, operator bool, name string) (owner, alias string)
	// Importer imports and builds templates; nil refuses both.
	Importer template.Importer
	// SpoolDir keeps uploaded templates while they are read; empty: the system's.
	SpoolDir string
	// NodeAPI answers GetStats and SetDraining; nil refuses both.
	NodeAPI  node.API
	Registry *prometheus.Registry // nil: a private one
	Logger   *slog.Logger         // nil: slog.Default
	Version  string
	// Rate bounds a project's requests; the zero value is DefaultRate.
	Rate Rate
	// Runtimes are the runtimes that specs may name; none means native alone.
	Runtimes []string
	// Seccomp refuses a profile and system calls on top that no box gets, before anything
	// is made for them; nil leaves it to the runtime.
	Seccomp func(profile string, allowExtra []string) error
	// Digests makes what a repeated create is known by; nil: a key of this process, so that none is known after a restart.
	Digests *keyed.Key
	// Decisions are the record that NetworkService reads; nil refuses its calls.
	Decisions Decisions
	// Facade serves what it says is its own, before the gateway looks at a path; nil: there is none.
	Facade Facade
}

// API is the gateway. Until SetReady it answers health checks, and everything
// else with a retryable unavailable error. It is safe for concurrent use.
type API struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	limiter *limiter // of projects
	// strangers are addresses, in a limiter of their own: they must not push projects out.
	strangers *limiter
	large     largeBodies
	routes    *http.ServeMux
	open      *http.ServeMux // without a key: health and metrics
	rpcErr    *connecthttp.ErrorWriter

	ready    atomic.Bool
	stopping atomic.Bool // by Drain: creates are refused, for good
	drained  atomic.Bool // by the operator: creates are refused
	closing  atomic.Bool // by Shutdown: streams are being ended

	server *http.Server
	base   context.Context // parent of every request
	end    context.CancelFunc
}

// New makes the gateway.
func New(cfg Config) *API {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	if cfg.Digests == nil {
		cfg.Digests = keyed.New()
	}
	a := &API{
		cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registry), limiter: newLimiter(cfg.Rate), strangers: newLimiter(strangerRate),
		routes: http.NewServeMux(), open: http.NewServeMux(), rpcErr: connecthttp.NewErrorWriter(),
	}
	a.base, a.end = context.WithCancel(context.Background())
	a.mountOpen()
	a.mountServices()
	a.mountBytes()
	a.metrics.add("e2b")
	a.server = a.newServer()
	return a
}

func (a *API) mountServices() {
	s := connect.NewServer(a.intercept)
	dsecv1connect.RegisterSessionServiceHandler(s, &sessions{a})
	dsecv1connect.RegisterExecServiceHandler(s, &execs{a})
	dsecv1connect.RegisterFileServiceHandler(s, &files{a})
	dsecv1connect.RegisterTemplateServiceHandler(s, &templates{a})
	dsecv1connect.RegisterNodeServiceHandler(s, &nodes{a})
	dsecv1connect.RegisterKeyServiceHandler(s, &keys{a})
	dsecv1connect.RegisterNetworkServiceHandler(s, &networks{a})
	if a.cfg.Leases != nil {
		dsecv1connect.RegisterLeaseServiceHandler(s, &leases{a})
	}
	s.SetUnknownHandler(func(_ context.Context, spec connect.Spec, _ connect.ServerStream) error {
		return errdefs.Userf(errdefs.Unsupported, "call "+clip(spec.Procedure), "use a call of proto/dsec/v1, or update the server", "there is no such call")
	})
	for spec := range s.Specs() {
		a.metrics.add(spec.Procedure)
	}
	connecthttp.Mount(a.routes, s,
		connecthttp.WithCodecs(newBinaryCodec(), newJSONCodec()),
		connecthttp.WithCompressMinBytes(8<<10), // smaller costs more to compress than to send
		connecthttp.WithConditionalOptions(func(spec connect.Spec) []connecthttp.Option {
			return []connecthttp.Option{connecthttp.WithReadMaxBytes(maxRequest(spec.Procedure))}
		}))
}

// maxRequest bounds a request message, in its larger JSON form.
func maxRequest(procedure string) int {
	switch procedure {
	case dsecv1connect.SessionServiceCreateProcedure, dsecv1connect.SessionServiceCreateStreamProcedure:
		return maxCode/3*4 + 4<<20
	case dsecv1connect.ExecServiceRunProcedure, dsecv1connect.ExecServiceStartProcedure:
		return maxStdinData/3*4 + 4<<20
	case dsecv1connect.ExecServiceWriteStdinProcedure:
		return maxStdinWrite/3*4 + 64<<10
	}
	return 1 << 20
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := requestID(r.Header.Get("X-Request-Id"))
	w.Header().Set("X-Request-Id", id)
	defer a.catch(w, r, id)
	if a.toFacade(w, r) {
		return
	}
	switch r.URL.Path {
	case "/livez", "/healthz", "/metrics":
		a.open.ServeHTTP(w, r)
		return
	}
	c, err := a.admit(r)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	size := a.large.size(r)
	if err := a.large.take(size); err != nil {
		a.refuse(w, r, err)
		return
	}
	defer a.large.give(size)
	c.request = id
	// A copy: the server looks at its own request's body to know where the next request begins.
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
	how := held{packed: packed(r.Header)}
	if size == 0 && strings.HasPrefix(r.URL.Path, "/dsec.v1.") {
		how.most = int64(maxRequest(r.URL.Path))
	}
	defer a.guardBody(w, r, how)()
	a.routes.ServeHTTP(newAnswer(w), r)
}

// admit tells who calls, if it may call now.
func (a *API) admit(r *http.Request) (caller, error) {
	if !a.ready.Load() {
		return caller{}, errStarting()
	}
	c, err := a.authenticate(r)
	if err == nil {
		return c, a.limiter.allow("project " + c.project)
	}
	if errdefs.From(err).Reason == errdefs.Unauthenticated {
		if limited := a.allowStranger(r); limited != nil {
			return caller{}, limited
		}
	}
	return caller{}, err
}

// refusing tells whether creates are refused.
func (a *API) refusing() bool { return a.stopping.Load() || a.drained.Load() }
