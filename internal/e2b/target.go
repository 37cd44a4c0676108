package e2b

import (
	"context"
	"crypto/subtle"
	"net/http"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
)

// Headers of requests to a box.
const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
	headerToken   = "X-Access-Token"
	headerTraffic = "E2b-Traffic-Access-Token"
)

// Target is the sandbox that a request to a box means, as it was when the request came.
type Target struct {
	ID, Project string
	Port        int
	boxes       *Sandboxes
	session     *control.Session
}

// Guest gives the box's guest; it counts as activity until release. A paused sandbox is resumed
// if it was made to resume by itself, otherwise the error has reason conflict.
func (t *Target) Guest(ctx context.Context) (guest guestclient.API, release func(), err error) {
	return t.boxes.guest(ctx, t.session)
}

// Token is the access token of the sandbox's envd, by which URLs are signed. It must not be sent
// to anybody who has not shown it.
func (t *Target) Token() string { return t.boxes.tokens.Envd(t.ID) }

// Env are the variables by which programs know that they run in a sandbox, and in which.
func (t *Target) Env() []string {
	return []string{"E2B_SANDBOX=true", "E2B_SANDBOX_ID=" + t.ID, "E2B_TEMPLATE_ID=" + t.session.Labels[labelTemplate]}
}

// User is whose the processes and files are of requests that name nobody; empty: the session's.
func (t *Target) User() string { return t.session.Labels[labelUser] }

// Workdir is where processes start that name no directory; empty: their user's home.
func (t *Target) Workdir() string { return t.session.Labels[labelWorkdir] }

// Authorize tells whether the request carries the sandbox's access token.
func (t *Target) Authorize(r *http.Request) error {
	if same(r.Header.Get(headerToken), t.Token()) {
		return nil
	}
	return errdefs.Userf(errdefs.Unauthenticated, "sandbox "+t.ID, "send the envdAccessToken of its creation as "+headerToken, "the request has no valid access token")
}

func same(given, want string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}
