package tmpl

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"

	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/e2b"
)

// Handler is the calls about templates, and what creates mean by one.
type Handler struct {
	builds *build.Service
	key    []byte // signs upload addresses
	routes *http.ServeMux
}

var _ e2b.Templates = (*Handler)(nil)

// New serves the builds of a node.
func New(builds *build.Service, log *slog.Logger) *Handler {
	h := &Handler{builds: builds, key: make([]byte, 32), routes: http.NewServeMux()}
	_, _ = rand.Read(h.key) // it never fails
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /v3/templates":                        h.requestV3,
		"POST /v2/templates":                        h.requestV2,
		"POST /templates":                           h.requestV1,
		"POST /templates/{id}":                      h.requestV1,
		"POST /v2/templates/{id}/builds/{build}":    h.startSteps,
		"POST /templates/{id}/builds/{build}":       h.startDockerfile,
		"GET /templates/{id}/builds/{build}/status": h.status,
		"GET /templates/{id}/builds/{build}/logs":   h.logs,
		"GET /templates/{id}/files/{hash}":          h.uploadLink,
		"PUT /templates/{id}/files/{hash}":          h.upload,
		"GET /templates":                            h.list,
		"GET /v2/templates":                         h.list,
		"GET /templates/{id}":                       h.get,
		"PATCH /templates/{id}":                     h.update,
		"PATCH /v2/templates/{id}":                  h.update,
		"DELETE /templates/{id}":                    h.remove,
		"POST /templates/tags":                      h.tag,
		"DELETE /templates/tags":                    h.untag,
		"GET /templates/{id}/{part}":                h.part,
		"GET /templates/{id}/tags/count":            h.countTags,
		"GET /templates/{id}/tags/exists":           h.hasTag,
	} {
		h.routes.HandleFunc(pattern, e2b.Answered(log, serve))
	}
	h.routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { e2b.WriteError(w, unknown(r)) })
	return h
}

// part serves /templates/aliases/{alias} and /templates/{id}/tags, which a mux cannot tell apart.
func (h *Handler) part(w http.ResponseWriter, r *http.Request) error {
	switch part := r.PathValue("part"); {
	case r.PathValue("id") == "aliases":
		r.SetPathValue("alias", part)
		return h.alias(w, r)
	case part == "tags":
		return h.tags(w, r)
	}
	return unknown(r)
}

// ServeHTTP implements e2b.Templates.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.routes.ServeHTTP(w, r) }

// Resolve implements e2b.Templates.
func (h *Handler) Resolve(ctx context.Context, c e2b.Caller, templateID string) (*e2b.Resolved, error) {
	r, err := h.builds.Resolve(ctx, build.Who{Project: c.Project, Operator: c.Operator}, templateID)
	if err != nil {
		return nil, err
	}
	return &e2b.Resolved{Template: r.Template, ID: r.ID, Alias: r.Alias, Built: r.Built}, nil
}
