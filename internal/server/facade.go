package server

import (
	"context"
	"net/http"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/template"
)

// facade composes the E2B wire.
func (s *server) facade(ctl *control.Control, templates template.Store) (*e2b.Facade, error) {
	tokens, err := e2b.OpenTokens(s.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	boxes := e2b.NewSandboxes(ctl, tokens)
	return e2b.New(e2b.Config{Sandboxes: boxes, Templates: knownTemplates{templates}, Logger: s.log}), nil
}

// knownTemplates lets sandboxes be made from templates that were imported, and makes none.
type knownTemplates struct{ store template.Store }

// Resolve implements e2b.Templates.
func (k knownTemplates) Resolve(ctx context.Context, _ e2b.Caller, templateID string) (*e2b.Resolved, error) {
	t, err := k.store.Get(ctx, templateID)
	if err != nil {
		return nil, err
	}
	return &e2b.Resolved{Template: t, ID: t.Name, Alias: t.Name}, nil
}

// ServeHTTP implements e2b.Templates.
func (k knownTemplates) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e2b.WriteError(w, errdefs.Userf(errdefs.Unsupported, "call "+r.Method+" "+r.URL.Path, "import it with `dsec template`", "this server makes no templates by this interface"))
}
