package control

import (
	"context"
	"errors"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/session"
)

// Locate gives a session of whatever project. It is for callers that prove their right to the
// session by something else than the project's key, which they must do before they tell anything of it.
func (c *Control) Locate(ctx context.Context, id string) (*Session, error) {
	l, s, err := c.locate(ctx, id)
	if l != nil {
		return c.show(l), nil
	}
	return s, err
}

// Reach is Guest for such callers. Without resume a suspended session stays so, and the error
// has reason conflict.
func (c *Control) Reach(ctx context.Context, id string, resume bool) (guest guestclient.API, release func(), err error) {
	l, s, err := c.locate(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	if l == nil {
		return nil, nil, ended(s)
	}
	return c.guest(ctx, l, resume)
}

func (c *Control) locate(ctx context.Context, id string) (*live, *Session, error) {
	if l := c.find(id); l != nil {
		return l, nil, nil
	}
	if !session.ValidID(id) {
		return nil, nil, unknown(id)
	}
	rec, err := c.store.Get(ctx, id)
	if errors.Is(err, errdefs.ErrNotFound) {
		return nil, nil, unknown(id)
	}
	if err != nil {
		return nil, nil, err
	}
	return nil, view(rec, rec.Row), nil
}
