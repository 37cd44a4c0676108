// Package relay moves the bytes of an allowed flow between a box and the world: as whole chunks,
// in the box's turn, counted, and holding no buffer while nothing comes.
package relay

import (
	"sync"

	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// Sink takes bytes.
type Sink interface {
	// TryWrite writes what can be written at once, which may be nothing.
	TryWrite(b []byte) (int, error)
	// WaitWrite waits until something can be written, or the end is broken.
	WaitWrite() error
	// CloseWrite says that nothing more comes.
	CloseWrite() error
}

// Way is how bytes of a flow go in one direction.
type Way struct {
	Turn    func(func()) // runs the part that does not block
	Moved   func(int)    // is told after each chunk
	Crowded func() bool  // tells whether the box has so many flows that each should keep little
}

// End is one side of a flow. Abort makes the others return, and the peer see a reset; both it and Close may be called
// several times.
type End interface {
	Sink
	// Pump writes everything that comes to dst, until the peer has said that nothing more comes
	// (nil) or an error.
	Pump(dst Sink, w Way) error
	Abort()
	Close() error
}

// Run relays until both directions have ended, or one failed, or the flow is cut; then both ends are closed. The flow
// is ended with it.
func Run(f *gate.Flow, box, world End) {
	f.OnCut(func() { box.Abort(); world.Abort() })
	var wg sync.WaitGroup
	var failed bool
	var mu sync.Mutex
	one := func(from, to End, moved func(int)) {
		err := from.Pump(to, Way{f.Turn, moved, f.Gate().Crowded})
		if err == nil {
			err = to.CloseWrite()
		}
		if err != nil {
			mu.Lock()
			failed = true
			mu.Unlock()
			box.Abort()
			world.Abort()
		}
	}
	wg.Go(func() { one(world, box, f.Received) })
	one(box, world, f.Sent)
	wg.Wait()
	_ = box.Close()
	_ = world.Close()
	reason := policy.Reason("")
	if failed {
		reason = policy.ConnectionReset
	}
	f.End(reason)
}
