package node

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/sched"
)

// loanPause is how long a loan waits at most before it asks for room again: what is given back
// wakes it, but not a box of the pool that has become idle and can be reclaimed for it.
const loanPause = 2 * time.Second

// Lend promises room for a box that is no session's, such as a build's, and gives the id that the
// box must have: the patrol does not take it for an orphan until release. It waits for
// room; what this node can never promise is refused.
//
// It does not stand in the line of sessions: that is the control plane's, of sessions with rows of
// their own, and where it has got no room a loan must not hold up those that need less. So it takes
// what is given back if it is there first, as the head of that line does.
func (n *Node) Lend(ctx context.Context, l runtime.Limits) (id string, release func(), err error) {
	d := sched.Demand{Memory: l.Memory, CPU: l.CPURequest}
	for {
		room := n.ledger.room() // before it is asked for: what is given back meanwhile counts
		if err := n.admit(sched.Demand{}, d); err == nil {
			break
		} else if sched.Never(err) {
			return "", nil, err
		}
		select {
		case <-room:
		case <-time.After(loanPause):
		case <-ctx.Done():
			return "", nil, errdefs.From(ctx.Err())
		case <-n.ctx.Done():
			return "", nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "node", "it is stopping")
		}
	}
	id = "build-" + strings.ToLower(rand.Text()[:16])
	n.mu.Lock()
	n.lent[id] = true
	n.mu.Unlock()
	return id, sync.OnceFunc(func() {
		n.mu.Lock()
		delete(n.lent, id)
		n.mu.Unlock()
		n.ledger.release(d)
		n.freed()
	}), nil
}

// Capacity is the memory that the node can promise in all.
func (n *Node) Capacity() int64 {
	total, _ := n.ledger.figures()
	return total.Memory
}
