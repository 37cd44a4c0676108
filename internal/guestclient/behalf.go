package guestclient

import (
	"context"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// Behalf says for whom file operations act, and what they tell.
type Behalf struct {
	User string // empty: the box's
	// AttrPrefix is that of the extended attributes that are told, and that WriteFile replaces
	// by WriteOptions.Attrs; empty: none are.
	AttrPrefix string
}

type behalfKey struct{}

// OnBehalf makes the file operations under the context it gives act for a user, with the power
// of the box's root, as an agent that runs as root does for whom it serves:
//
//   - relative paths begin at the user's home, and paths in answers are absolute;
//   - what is new belongs to the user, missing directories of Parents and of Move included;
//   - WriteFile writes into the file itself, like a program: whoever watches it sees writes, an
//     upload that breaks off leaves a part, and the file becomes the user's;
//   - Stat and ListDir tell what symbolic links lead to.
//
// A user that a call names itself counts more.
func OnBehalf(ctx context.Context, b Behalf) context.Context {
	return context.WithValue(ctx, behalfKey{}, b)
}

// behalf fills in on whose behalf a request is made.
func behalf(ctx context.Context, req *guestproto.FileRequest) *guestproto.FileRequest {
	if b, ok := ctx.Value(behalfKey{}).(Behalf); ok {
		req.Behalf, req.AttrPrefix = true, b.AttrPrefix
		if req.User == "" {
			req.User = b.User
		}
	}
	return req
}
