package node

import (
	"sync"
	"sync/atomic"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/sched"
)

// box is one box of the node, from its admission to the proof that nothing of it is left.
type box struct {
	id    string
	rt    runtime.Runtime
	store poolStore // of one with a writable root that was made for the pool

	mu      sync.Mutex
	meta    meta
	rbox    runtime.Box  // nil before it is made, and when it could not be opened again
	demand  sched.Demand // what the ledger promised for it
	session *session     // nil in the pool
	made    bool         // idle in the pool, or bound: patrol looks after its end
	begun   bool         // the runtime was, or is about to be, asked to make it
	gone    bool

	net network
	ops followedOps // of one with a network

	destroying atomic.Bool
	reclaiming flight
}

func (b *box) runtimeBox() runtime.Box {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rbox
}

// networked tells whether the box has policies of a way out, open or not.
func (b *box) networked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.meta.Network != nil
}

// ended tells whether PID 1 of r is gone.
func ended(r runtime.Box) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}
