package envd

import (
	"net/http"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// health is how SDKs ask whether a sandbox runs. It needs no token and tells nothing else.
func (h *Handler) health(w http.ResponseWriter, r *http.Request) error {
	s := sandboxOf(r.Context())
	g, release, err := s.guest(r.Context())
	if err != nil {
		return err
	}
	defer release()
	if err := g.Ping(r.Context()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *Handler) unknown(_ http.ResponseWriter, r *http.Request) error {
	return errdefs.Userf(errdefs.NotFound, "path "+clip(r.URL.Path), "see docs/e2b.md for what this server has", "there is no such call")
}
