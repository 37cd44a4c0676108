package api

import (
	"context"
	"net"
	"net/http"
	"strings"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// operatorProject is the project whose keys may change what all projects share:
// templates, keys, draining.
const operatorProject = control.DefaultProject

// caller is who sent a request.
type caller struct {
	project  string
	operator bool // may change what projects share
	root     bool // host root on the unix socket: may name paths of the server
	request  string
}

type callerKey struct{}

func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// maxKey bounds a key that is looked up at all.
const maxKey = 256

// authenticate tells who calls: the project of an API key, in X-API-Key or as a
// bearer token, or without a key host root on the unix socket, in the project that
// it names. What is wrong with a key is never said.
func (a *API) authenticate(r *http.Request) (caller, error) {
	key := r.Header.Get("X-Api-Key")
	if key == "" {
		auth := r.Header.Get("Authorization")
		if scheme, token, ok := strings.Cut(auth, " "); ok && strings.EqualFold(scheme, "bearer") {
			key = strings.TrimSpace(token)
		} else if auth != "" {
			key = auth // not a bearer token: refused by the look-up, like any other wrong key
		}
	}
	if key == "" {
		if !peerIsRoot(r.Context()) {
			return caller{}, errUnauthenticated()
		}
		project := r.Header.Get("Dsec-Project")
		if project == "" {
			project = operatorProject
		}
		if err := checkProject("header Dsec-Project", project); err != nil {
			return caller{}, err
		}
		return caller{project: project, operator: true, root: true}, nil
	}
	project, err := a.cfg.Keys.Lookup(r.Context(), key[:min(len(key), maxKey)])
	if err != nil {
		if e := errdefs.From(err); e.Reason != errdefs.Unauthenticated && e.Reason != errdefs.NotFound {
			return caller{}, e
		}
		return caller{}, errUnauthenticated()
	}
	return caller{project: project, operator: project == operatorProject}, nil
}

func errUnauthenticated() error {
	return errdefs.Userf(errdefs.Unauthenticated, "request", "set DSEC_API_KEY to a live key, or send it as 'Authorization: Bearer e2b_…' or 'X-API-Key: e2b_…'; the first is in api-key of the server's data directory, `dsec key create` makes more", "there is no valid API key")
}

// operatorOnly refuses callers of other projects.
func operatorOnly(ctx context.Context, what string) error {
	if c := callerOf(ctx); !c.operator {
		return errdefs.Policyf(errdefs.Forbidden, "project "+c.project, "ask the operator, or use a key of the project default", "%s is for the operator", what)
	}
	return nil
}

type peerKey struct{}

// connContext marks connections of host root on a unix socket.
func connContext(ctx context.Context, c net.Conn) context.Context {
	if u, ok := c.(*net.UnixConn); ok && peerUID(u) == 0 {
		return context.WithValue(ctx, peerKey{}, true)
	}
	return ctx
}

func peerIsRoot(ctx context.Context) bool {
	root, _ := ctx.Value(peerKey{}).(bool)
	return root
}
