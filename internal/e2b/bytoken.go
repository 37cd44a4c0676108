package e2b

import (
	"net/http"
	"strings"

	"github.com/dsec-platform/dsec/internal/session"
)

// sandboxOfToken gives the sandbox that an access token names. That it names one proves nothing.
func sandboxOfToken(token string) (id string, ok bool) {
	id, _, ok = strings.Cut(token, ".")
	return id, ok && session.ValidID(id)
}

// addressByToken finds the sandbox of a request to the agent that names none: SDKs of before 2026
// send no address with the requests for files when all of E2B is at one URL, only the token.
func addressByToken(r *http.Request) (id string, ok bool) {
	switch p := r.URL.Path; {
	case p == "/files", p == "/health", strings.HasPrefix(p, "/process.Process/"), strings.HasPrefix(p, "/filesystem.Filesystem/"):
		return sandboxOfToken(r.Header.Get(headerToken))
	}
	return "", false
}
