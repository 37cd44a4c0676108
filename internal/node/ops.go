package node

import (
	"context"
	"sync"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// followedOps are the ops of a box that somebody waits for or is attached to: what the box's egress takes
// for the cause of what it sees, if there is one alone. An op that nobody follows may go on, and
// so may what an op left in the background; of these nothing is known without asking the guest. The
// zero value is ready.
type followedOps struct {
	mu sync.Mutex
	by map[guestproto.OpID]int // how many follow it
}

// follow counts an op until done, which may be called again. An op without an id is not counted.
func (f *followedOps) follow(id guestproto.OpID) (done func()) {
	if id == "" {
		return func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.by == nil {
		f.by = map[guestproto.OpID]int{}
	}
	f.by[id]++
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.by[id]--; f.by[id] == 0 {
			delete(f.by, id)
		}
	})
}

// only gives the op that is followed, "" when none is or several are.
func (f *followedOps) only() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.by) != 1 {
		return ""
	}
	for id := range f.by {
		return string(id)
	}
	return ""
}

// opGuest is the guest of a networked box, whose ops are followed through it.
type opGuest struct {
	guestclient.API
	ops *followedOps
}

func (g opGuest) Run(ctx context.Context, req guestproto.ExecRequest) (*guestproto.Result, error) {
	defer g.ops.follow(req.OpID)()
	return g.API.Run(ctx, req)
}

func (g opGuest) Start(ctx context.Context, req guestproto.ExecRequest) (guestclient.ExecStream, error) {
	done := g.ops.follow(req.OpID)
	s, err := g.API.Start(ctx, req)
	if err != nil {
		done()
		return nil, err
	}
	if req.OpID == "" {
		done = g.ops.follow(s.OpID())
	}
	return &opStream{s, done}, nil
}

func (g opGuest) Attach(ctx context.Context, op guestproto.OpID, stdout, stderr int64) (guestclient.ExecStream, error) {
	s, err := g.API.Attach(ctx, op, stdout, stderr)
	if err != nil {
		return nil, err
	}
	return &opStream{s, g.ops.follow(op)}, nil
}

// opStream follows an op until its exit, or until it is left.
type opStream struct {
	guestclient.ExecStream
	done func()
}

func (s *opStream) Recv() (guestproto.ExecEvent, error) {
	ev, err := s.ExecStream.Recv()
	if err != nil || ev.Kind == guestproto.EventExit {
		s.done()
	}
	return ev, err
}

func (s *opStream) Close() error {
	s.done()
	return s.ExecStream.Close()
}
