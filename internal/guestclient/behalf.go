package guestclient

import (
	"context"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

type behalfKey struct{}

// OnBehalf makes the file operations under the context it gives act for user (empty: the box's),
// with the power of the box's root, as an agent that runs as root does for whom it serves:
//
//   - relative paths begin at the user's home, and paths in answers are absolute;
//   - what is new belongs to the user, missing directories of Parents and of Move included;
//   - WriteFile writes into the file itself, like a program: whoever watches it sees writes, an
//     upload that breaks off leaves a part, and the file becomes the user's;
//   - Stat and ListDir tell what symbolic links lead to.
//
// A user that a call names itself counts more.
func OnBehalf(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, behalfKey{}, user)
}

// behalf fills in on whose behalf a request is made.
func behalf(ctx context.Context, req *guestproto.FileRequest) *guestproto.FileRequest {
	if user, ok := ctx.Value(behalfKey{}).(string); ok {
		req.Behalf = true
		if req.User == "" {
			req.User = user
		}
	}
	return req
}
