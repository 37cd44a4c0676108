package node

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// oneOp is a guest in which an op runs until its exit is asked for.
type oneOp struct {
	guestclient.API // nil: nothing else is asked of it
	during          func()
	fail            error
}

func (g oneOp) Run(context.Context, guestproto.ExecRequest) (*guestproto.Result, error) {
	g.during()
	return nil, g.fail
}

func (g oneOp) Start(_ context.Context, req guestproto.ExecRequest) (guestclient.ExecStream, error) {
	if req.OpID == "" {
		req.OpID = "chosen"
	}
	return &oneStream{id: req.OpID}, g.fail
}

func (g oneOp) Attach(_ context.Context, op guestproto.OpID, _, _ int64) (guestclient.ExecStream, error) {
	return &oneStream{id: op}, g.fail
}

type oneStream struct {
	id   guestproto.OpID
	told bool
}

func (s *oneStream) OpID() guestproto.OpID { return s.id }
func (s *oneStream) Close() error          { return nil }
func (s *oneStream) Recv() (guestproto.ExecEvent, error) {
	if s.told {
		return guestproto.ExecEvent{}, io.EOF
	}
	s.told = true
	return guestproto.ExecEvent{Kind: guestproto.EventExit}, nil
}

// The op that a box's egress takes for the cause is the one that is followed; of several none is.
func TestTheOpThatIsFollowed(t *testing.T) {
	var ops followedOps
	want := func(what, id string) {
		t.Helper()
		if got := ops.only(); got != id {
			t.Errorf("%s: %q, want %q", what, got, id)
		}
	}
	g := opGuest{API: oneOp{during: func() { want("during a run", "a") }}, ops: &ops}
	want("before any", "")
	if _, err := g.Run(t.Context(), guestproto.ExecRequest{OpID: "a"}); err != nil {
		t.Fatal(err)
	}
	want("after a run", "")

	one, err := g.Start(t.Context(), guestproto.ExecRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want("of an op that was given its id", "chosen")
	again, err := g.Attach(t.Context(), "chosen", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	want("followed twice", "chosen")
	other, err := g.Start(t.Context(), guestproto.ExecRequest{OpID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	want("of two", "")
	for _, s := range []guestclient.ExecStream{other, again} {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		_, _ = s.Recv()
		_ = s.Close()
	}
	want("the others have ended", "chosen")
	_ = one.Close()
	want("left", "")

	g.API = oneOp{during: func() {}, fail: errors.New("no such program")}
	_, _ = g.Run(t.Context(), guestproto.ExecRequest{OpID: "a"})
	_, _ = g.Start(t.Context(), guestproto.ExecRequest{OpID: "a"})
	_, _ = g.Attach(t.Context(), "a", 0, 0)
	want("what failed is not followed", "")
	if len(ops.by) != 0 {
		t.Errorf("left: %v", ops.by)
	}
}
