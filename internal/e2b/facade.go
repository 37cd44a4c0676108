package e2b

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
)

// Config of a facade. Sandboxes must be set.
type Config struct {
	Sandboxes *Sandboxes
	// Envd serves what is addressed to EnvdPort of a box; nil refuses it.
	Envd http.Handler
	// Signed tells whether a request to Envd carries, instead of the token, a signature made with it; nil: none does.
	Signed func(r *http.Request, token string) bool
	// Templates resolves and serves templates; nil refuses creates and the calls about templates.
	Templates Templates
	// Runtimes are the runtimes that a template's spec may name; none means native alone.
	Runtimes []string
	// Network is what a sandbox gets whose template and creator say none; empty: deny.
	Network spec.Network
	// Domain is told to SDKs, which address the ports of a sandbox as <port>-<id>.<domain>; empty: none is told.
	Domain string
	Logger *slog.Logger // nil: slog.Default
}

// Facade is the E2B wire. The gateway asks Route about every request and calls Serve with those
// that are the facade's.
type Facade struct {
	cfg    Config
	log    *slog.Logger
	routes *http.ServeMux
}

// New makes a facade.
func New(cfg Config) *Facade {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Network = spec.Resolve(spec.Sandbox{Network: cfg.Network}, spec.Sandbox{}).Network
	f := &Facade{cfg: cfg, log: cfg.Logger, routes: http.NewServeMux()}
	f.mount()
	return f
}

// Serve answers a request that Route said is the facade's.
func (f *Facade) Serve(w http.ResponseWriter, r *http.Request, c api.FacadeCaller) {
	if id, port, ok := boxAddress(r); ok {
		f.serveBox(w, r, c, id, port)
		return
	}
	if c.Project == "" { // an upload to a signed address, or nothing that needs a right
		if err := c.Allow(""); err != nil {
			WriteError(w, err)
			return
		}
	}
	r = r.WithContext(context.WithValue(r.Context(), callerKey{}, Caller{c.Project, c.Operator}))
	f.routes.ServeHTTP(w, r)
}

// Refuse answers a request of the facade that the gateway does not let through.
func (f *Facade) Refuse(w http.ResponseWriter, err error) { WriteError(w, err) }

// serveBox finds the box and passes the request on.
func (f *Facade) serveBox(w http.ResponseWriter, r *http.Request, c api.FacadeCaller, id string, port int) {
	t, err := f.admitToBox(r, c, id, port)
	if err != nil {
		writeBoxError(w, err)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), targetKey{}, t))
	switch {
	case port == 0:
		WriteError(w, errdefs.Userf(errdefs.InvalidArgument, "header "+headerPort, "send a number from 1 to 65535", "%q is no port", r.Header.Get(headerPort)))
	case port != EnvdPort:
		f.servePort(w, r, t)
	case f.cfg.Envd == nil:
		WriteError(w, errdefs.Userf(errdefs.Unsupported, "envd", "use the product's own API", "this server does not serve it"))
	default:
		f.cfg.Envd.ServeHTTP(w, r)
	}
}

// admitToBox finds the box of a request at a bounded rate: of the box's project for who shows one of
// the box's tokens, else of strangers. To a stranger a box that does not exist is one that it may not use;
// nor is it looked for, where no right is proven: how long that took would tell whether it is there.
func (f *Facade) admitToBox(r *http.Request, c api.FacadeCaller, id string, port int) (*Target, error) {
	boxes := f.cfg.Sandboxes
	proven := boxes.opens(r, id, port)
	if !proven {
		if err := c.Allow(""); err != nil {
			return nil, err
		}
	}
	// A port may be public: that is the box's to say.
	if !proven && (port == EnvdPort || port == 0) && (f.cfg.Signed == nil || !f.cfg.Signed(r, boxes.tokens.Envd(id))) {
		return boxes.nowhere(id, port), nil
	}
	t, err := boxes.target(r.Context(), id, port)
	if err != nil || !proven {
		return t, err
	}
	return t, c.Allow(t.Project)
}

// writeBoxError says that a box cannot be reached as SDKs expect it from the sandbox's address:
// they take 502 for a sandbox that is gone or paused.
func writeBoxError(w http.ResponseWriter, err error) {
	e := errdefs.From(err)
	status := Status(e)
	if errors.Is(e, errdefs.ErrNotFound) || errors.Is(e, errdefs.ErrBoxGone) || errors.Is(e, errdefs.ErrConflict) || e.Reason == errdefs.BoxTampered {
		status = http.StatusBadGateway
	}
	WriteErrorAs(w, status, e)
}
