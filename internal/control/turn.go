package control

import (
	"context"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// turn is a lock whose holder may wait for the store, and for which nobody waits longer than its
// caller does.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errdefs.From(ctx.Err())
	}
}

func (t turn) tryTake() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) give() { <-t }
