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

// loanPause is how long a loan waits before it asks for room again.
const loanPause = 200 * time.Millisecond

// Lend promises room for a box that is no session's, such as a build's, and gives the id that the
// box must have: the patrol does not take it for an orphan until release. It waits for
// room; what this node can never promise is refused.
func (n *Node) Lend(ctx context.Context, l runtime.Limits) (id string, release func(), err error) {
	d := sched.Demand{Memory: l.Memory, CPU: l.CPURequest}
	for {
		if err := n.admit(sched.Demand{}, d); err == nil {
			break
		} else if sched.Never(err) {
			return "", nil, err
		}
		select {
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
