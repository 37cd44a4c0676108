package e2b

import (
	"io"
	"log"
	"net/http"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// discard takes what the proxy would log about its clients and boxes.
var discard = log.New(io.Discard, "", 0)

// mount lays out the control API.
func (f *Facade) mount() {
	f.routes.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	for _, p := range []string{"/templates", "/v2/templates", "/v3/templates"} {
		f.routes.HandleFunc(p, f.serveTemplates)
		f.routes.HandleFunc(p+"/", f.serveTemplates)
	}
	f.routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, errdefs.Userf(errdefs.NotFound, "call "+r.Method+" "+r.URL.Path, "see docs/e2b.md for what there is", "there is nothing here"))
	})
}

func (f *Facade) serveTemplates(w http.ResponseWriter, r *http.Request) {
	if f.cfg.Templates == nil {
		WriteError(w, errdefs.Userf(errdefs.Unsupported, "templates", "use `dsec template`", "this server does not serve them"))
		return
	}
	f.cfg.Templates.ServeHTTP(w, r)
}
