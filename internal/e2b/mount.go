package e2b

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// mount lays out the control API.
func (f *Facade) mount() {
	for pattern, h := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /sandboxes":                  f.listV1,
		"POST /sandboxes":                 f.createV1,
		"GET /v2/sandboxes":               f.listV2,
		"POST /v2/sandboxes":              f.createV2,
		"GET /sandboxes/metrics":          f.metricsOfMany,
		"GET /sandboxes/{id}":             f.get,
		"DELETE /sandboxes/{id}":          f.kill,
		"POST /sandboxes/{id}/timeout":    f.timeout,
		"POST /sandboxes/{id}/refreshes":  f.refresh,
		"POST /sandboxes/{id}/pause":      f.pause,
		"POST /sandboxes/{id}/resume":     f.resume,
		"POST /sandboxes/{id}/connect":    f.connectV1,
		"POST /v2/sandboxes/{id}/connect": f.connectV2,
		"PUT /sandboxes/{id}/network":     f.updateNetwork,
		"GET /sandboxes/{id}/metrics":     f.metrics,
		"GET /sandboxes/{id}/logs":        f.logsV1,
		"GET /v2/sandboxes/{id}/logs":     f.logsV2,
		"POST /sandboxes/{id}/fork":       absent("fork", "create another sandbox", "a running sandbox cannot be copied yet"),
		"POST /sandboxes/{id}/snapshots":  absent("snapshots", "build a template, or copy the files out", "there are no snapshots yet"),
		"/snapshots":                      absent("snapshots", "build a template, or copy the files out", "there are no snapshots yet"),
		"/volumes":                        absent("volumes", "put the data into a template, or copy it in", "there are no volumes"),
		"/volumes/":                       absent("volumes", "put the data into a template, or copy it in", "there are no volumes"),
		"/volumecontent/":                 absent("volumes", "put the data into a template, or copy it in", "there are no volumes"),
		"/secrets":                        absent("secrets", "give the sandbox what it needs by envVars", "no secrets are kept"),
		"/secrets/":                       absent("secrets", "give the sandbox what it needs by envVars", "no secrets are kept"),
		"/teams":                          absent("teams", "see docs/operations.md for projects, keys and figures", "there are no teams"),
		"/teams/":                         absent("teams", "see docs/operations.md for projects, keys and figures", "there are no teams"),
		"/":                               nothing,
	} {
		f.routes.HandleFunc(pattern, f.answered(h))
	}
	for _, p := range []string{"/templates", "/v2/templates", "/v3/templates"} {
		f.routes.HandleFunc(p, f.serveTemplates)
		f.routes.HandleFunc(p+"/", f.serveTemplates)
	}
	f.routes.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
}

func (f *Facade) answered(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return Answered(f.log, h)
}

// Answered turns a handler's error into the answer. What nobody foresaw is told to the log and not to
// the client: its text may hold anything.
func Answered(log *slog.Logger, h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := h(w, r)
		if err == nil {
			return
		}
		e := errdefs.From(err)
		if e.Class == errdefs.Infrastructure { // the client is not told of files
			level := slog.LevelError
			if e.Reason == errdefs.Unavailable {
				level = slog.LevelInfo
			}
			log.Log(r.Context(), level, "request failed", "call", "e2b "+r.Pattern, "error", e.Error(), "cause", e.Cause)
		}
		if _, foreseen := errors.AsType[*errdefs.Error](err); !foreseen && e.Class == errdefs.Infrastructure {
			e = errdefs.Infraf(errdefs.ScopePlatform, errdefs.Internal, "request", "the server failed in a way that it did not foresee; its log has the cause")
		}
		WriteError(w, e)
	}
}

// absent refuses what the platform does not have.
func absent(what, remedy, why string) func(http.ResponseWriter, *http.Request) error {
	return func(http.ResponseWriter, *http.Request) error {
		return errdefs.Userf(errdefs.Unsupported, what, remedy, "%s", why)
	}
}

func nothing(_ http.ResponseWriter, r *http.Request) error {
	return errdefs.Userf(errdefs.NotFound, "call "+Clip(r.Method+" "+r.URL.Path), "see docs/e2b.md for what there is", "there is nothing here")
}

func (f *Facade) serveTemplates(w http.ResponseWriter, r *http.Request) {
	if f.cfg.Templates == nil {
		WriteError(w, errdefs.Userf(errdefs.Unsupported, "templates", "use `dsec template`", "this server does not serve them"))
		return
	}
	f.cfg.Templates.ServeHTTP(w, r)
}
