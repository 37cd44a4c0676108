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

// envs are the variables of the sandbox's creation.
func (h *Handler) envs(w http.ResponseWriter, r *http.Request) error {
	env := sandboxOf(r.Context()).Env
	if env == nil {
		env = map[string]string{}
	}
	writeJSON(w, http.StatusOK, env)
	return nil
}

func (h *Handler) unknown(_ http.ResponseWriter, r *http.Request) error {
	return errdefs.Userf(errdefs.NotFound, "path "+clip(r.URL.Path), "see docs/e2b.md for what this server has", "there is no such call")
}
