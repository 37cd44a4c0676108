package e2b

import (
	"context"
	"crypto/subtle"

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

// Target is the sandbox that a request to a box means, as it was when the request came. It may not
// be there: then Guest says so, to callers that have proven their right.
type Target struct {
	ID, Project string
	Port        int
	boxes       *Sandboxes
	labels      map[string]string
	session     *control.Session // nil: it has ended, or never was
}

// Guest gives the box's guest; it counts as activity until release. A paused sandbox is resumed
// if it was made to resume by itself, otherwise the error has reason conflict.
func (t *Target) Guest(ctx context.Context) (guest guestclient.API, release func(), err error) {
	if t.session == nil {
		return nil, nil, errdefs.Userf(errdefs.NotFound, "sandbox "+t.ID, "create another", "it has ended, or never was")
	}
	return t.boxes.guest(ctx, t.session)
}

// Token is the access token of the sandbox's envd, by which URLs are signed. It must not be sent
// to anybody who has not shown it.
func (t *Target) Token() string { return t.boxes.tokens.Envd(t.ID) }

// Env are the variables by which programs know that they run in a sandbox, and in which.
func (t *Target) Env() []string {
	return []string{"E2B_SANDBOX=true", "E2B_SANDBOX_ID=" + t.ID, "E2B_TEMPLATE_ID=" + t.labels[labelTemplate]}
}

// User is whose the processes and files are of requests that name nobody; empty: the session's.
func (t *Target) User() string { return t.labels[labelUser] }

// Workdir is where processes start that name no directory; empty: their user's home.
func (t *Target) Workdir() string { return t.labels[labelWorkdir] }

func same(given, want string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(want)) == 1
}
