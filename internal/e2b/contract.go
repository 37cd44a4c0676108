package e2b

import (
	"context"
	"net/http"

	"github.com/dsec-platform/dsec/internal/template"
)

// EnvdPort is the port by which SDKs address the agent of a sandbox.
const EnvdPort = 49983

// EnvdVersion is told to SDKs, which choose by it how to speak to envd: from 0.4.0 they send no
// default user, from 0.5.2 they close stdin, from 0.5.7 they upload octet streams, from 0.6.2 metadata, from
// 0.6.3 watches tell of the file, from 0.6.4 of file systems of the network too.
const EnvdVersion = "0.6.4"

// What a message to a box's agent may have, unpacked: MaxInput one of a stream of input, MaxMessage any other.
const (
	MaxMessage = 16 << 20
	MaxInput   = 4 << 20
)

// DefaultUser is whose processes and files a sandbox's are when a request names nobody.
const DefaultUser = "user"

// Caller is whose API key a request of the control or template API carries.
type Caller struct {
	Project  string
	Operator bool // may change what projects share, templates among them
}

type callerKey struct{}

// CallerOf gives the caller of a request that Serve passed on by key.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

type targetKey struct{}

// TargetOf gives the sandbox that a request to a box means. The facade has put it there.
// Whether the caller may use it is for the handler to ask, because some requests are signed instead of
// carrying the token; and before it tells or does anything else, because the sandbox may not be there.
func TargetOf(ctx context.Context) *Target {
	t, _ := ctx.Value(targetKey{}).(*Target)
	return t
}

// Templates resolves what SDKs call a template, and serves the calls about templates.
type Templates interface {
	http.Handler
	// Resolve gives what the templateID of a create means to the caller: an alias, a
	// template's id, "alias:tag", or an OCI reference. NotFound for anything else.
	Resolve(ctx context.Context, c Caller, templateID string) (*Resolved, error)
}

// Resolved is a template as a create needs it.
type Resolved struct {
	Template *template.Template
	ID       string // templateID of the answer
	Alias    string // empty if it has none
	Built    bool   // by a build, whose user and directory are those of its sandboxes
}
