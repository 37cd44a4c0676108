package e2b

import (
	"context"
	"errors"
	"net/http"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
)

// Control is the control plane as the facade uses it. *control.Control is one.
type Control interface {
	control.API
	control.Deadlines
	control.Network
	Locate(ctx context.Context, id string) (*control.Session, error)
	Reach(ctx context.Context, id string, resume bool) (guest guestclient.API, release func(), err error)
}

// Sandboxes finds the sessions that were made through the facade. To it there are no others.
type Sandboxes struct {
	control Control
	tokens  *Tokens
}

// NewSandboxes gives the sandboxes of a control plane.
func NewSandboxes(c Control, t *Tokens) *Sandboxes { return &Sandboxes{c, t} }

// target finds the sandbox of a request to a box. One that does not exist is a target too, which the
// handlers refuse like any other until the caller has proven its right: its guest is not found.
func (s *Sandboxes) target(ctx context.Context, id string, port int) (*Target, error) {
	got, err := s.control.Locate(ctx, id)
	switch {
	case err != nil && !errors.Is(err, errdefs.ErrNotFound):
		return nil, err
	case err != nil || !isSandbox(got):
		return s.nowhere(id, port), nil
	}
	t := &Target{ID: id, Project: got.Project, Port: port, boxes: s, labels: got.Labels}
	if !over(got) {
		t.session = got
	}
	return t, nil
}

// nowhere is the target of a request to a sandbox that does not exist, as far as the caller may know.
func (s *Sandboxes) nowhere(id string, port int) *Target {
	return &Target{ID: Clip(id), Port: port, boxes: s}
}

// opens tells whether the request carries a token for that port of that sandbox, be there one or not.
func (s *Sandboxes) opens(r *http.Request, id string, port int) bool {
	return same(r.Header.Get(headerToken), s.tokens.Envd(id)) || port != EnvdPort && same(r.Header.Get(headerTraffic), s.tokens.Traffic(id))
}

// guest reaches the box of a sandbox.
func (s *Sandboxes) guest(ctx context.Context, of *control.Session) (guestclient.API, func(), error) {
	g, release, err := s.control.Reach(ctx, of.ID, false)
	if !errors.Is(err, errdefs.ErrConflict) || !resumesByItself(of) {
		return g, release, err
	}
	return s.control.Reach(ctx, of.ID, true)
}

func noSandbox(id string) error {
	return errdefs.Userf(errdefs.NotFound, "sandbox "+id, "list the sandboxes to see which there are", "it was not found: it has ended, or never was")
}

// over tells whether the sandbox is gone to its users, though its reclaim may not have ended.
func over(s *control.Session) bool {
	return s.Desired == "stopped" || s.Desired == "audit" || s.Phase == "COMPLETED" || s.Phase == "FAILED"
}
