package control_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/spec"
)

// A create whose caller's time is over says whether its box was being started or waited for room.
func TestWhatACreateWaitedFor(t *testing.T) {
	w := newWorld(t, 1, spec.Scheduler{})
	defer w.end()
	w.node.onCreate = func(ctx context.Context, _ node.CreateRequest) error {
		<-ctx.Done() // as a start command that does not get ready
		return ctx.Err()
	}
	ask := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // in which a busy machine places a session
		defer cancel()
		_, err := w.Create(ctx, control.DefaultProject, request(1))
		if errdefs.From(err).Reason != errdefs.TimedOut {
			t.Errorf("%v", err)
		}
		return err
	}
	if err := ask(); !errors.Is(err, control.ErrStarting) {
		t.Errorf("its box was being started: %v", err)
	}
	w.node.onCreate = nil
	w.create(request(1)) // takes all the room
	if err := ask(); errors.Is(err, control.ErrStarting) {
		t.Errorf("it waited for room: %v", err)
	}
}
