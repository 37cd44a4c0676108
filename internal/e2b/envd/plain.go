package envd

import (
	"net/http"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// health is how SDKs ask whether a sandbox runs. They send the token, without which nobody shall
// learn that, nor wake a sandbox that resumes by itself.
func (h *Handler) health(w http.ResponseWriter, r *http.Request) error {
	s := sandboxOf(r.Context())
	if !tokenFits(&s, r.Header.Get(headerToken)) {
		return unauthenticated(&s)
	}
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
	return errdefs.Userf(errdefs.NotFound, "path "+e2b.Clip(r.URL.Path), "see docs/e2b.md for what this server has", "there is no such call")
}
