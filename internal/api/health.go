package api

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// mountOpen adds what needs no key.
func (a *API) mountOpen() {
	a.open.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	a.open.HandleFunc("GET /healthz", a.healthz)
	a.open.Handle("GET /metrics", promhttp.HandlerFor(a.cfg.Registry, promhttp.HandlerOpts{}))
}

// healthz answers 200 when the server takes work.
func (a *API) healthz(w http.ResponseWriter, r *http.Request) {
	switch {
	case !a.ready.Load():
		a.refuse(w, r, errStarting())
	case a.refusing():
		a.refuse(w, r, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "server", "it is draining"))
	default:
		io.WriteString(w, "ok\n")
	}
}

func errStarting() error {
	return errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "server", "it is starting")
}
