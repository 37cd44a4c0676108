package mcp

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

const (
	// cleanUp bounds how long the stop of what a connection made is awaited.
	cleanUp = 30 * time.Second
	// beat is how often a connection says that the owner of a kept session lives.
	beat = 15 * time.Second
	// silence is how long this process may be silent before the server takes it for dead
	// and stops the sessions of its connections.
	silence = time.Minute
)

// connection is one client of the protocol, with the sessions it made.
type connection struct {
	c   *dsec.Client
	max int

	ctx context.Context // ends with the connection
	end context.CancelFunc

	leasing sync.Mutex
	lease   *dsec.Lease // owns the sessions that are not kept; nil before the first one

	mu      sync.Mutex
	own     map[string]bool // sessions made here and not stopped; true: kept
	making  int             // creates that run
	creates sync.WaitGroup  // the same, to wait for
}

func newConnection(c *dsec.Client, most int) *connection {
	cn := &connection{c: c, max: most, own: map[string]bool{}}
	cn.ctx, cn.end = context.WithCancel(context.Background())
	return cn
}

// during gives a context that ends with the call or with the connection.
func (cn *connection) during(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(cn.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// begin reserves room for a session that is about to be made; the caller calls made once.
func (cn *connection) begin() error {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	if cn.ctx.Err() != nil {
		return &dsec.Error{Class: dsec.ClassUser, Reason: "canceled", Scope: "platform", Message: "the connection has ended", Remedy: "connect again"}
	}
	live := cn.making
	for _, kept := range cn.own {
		if !kept {
			live++
		}
	}
	if live >= cn.max {
		return &dsec.Error{Class: dsec.ClassLimit, Reason: "quota_exceeded", Scope: "platform", Object: "connection", Message: "it has as many live sessions as it may have", Remedy: "stop one that is not needed any more"}
	}
	cn.making++
	cn.creates.Add(1)
	return nil
}

// made ends what begin began; id is empty when there is no session.
func (cn *connection) made(id string, keep bool) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	cn.making--
	if id != "" {
		cn.own[id] = keep
		if keep { // the lease speaks for the others
			go func() { _ = cn.c.Session(id).KeepAlive(cn.ctx, beat) }() // its error says that the session has ended
		}
	}
	cn.creates.Done()
}

// owner gives the id of the connection's lease, and makes it at the first need: so the
// server stops the sessions also when this process is killed.
func (cn *connection) owner(ctx context.Context) (string, error) {
	cn.leasing.Lock()
	defer cn.leasing.Unlock()
	if cn.lease != nil {
		select {
		case <-cn.lease.Lost(): // this process stood still for too long
			cn.forgetLost()
		default:
			return cn.lease.ID(), nil
		}
	}
	// It lives longer than the call, and than the connection: see stopAll.
	l, err := cn.c.Lease(context.WithoutCancel(ctx), dsec.LeaseOptions{TTL: silence})
	if err != nil {
		return "", err
	}
	cn.lease = l
	return l.ID(), nil
}

// forget drops a session that was stopped.
func (cn *connection) forget(id string) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.own, id)
}

// forgetLost drops the sessions that ended with the lease.
func (cn *connection) forgetLost() {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	maps.DeleteFunc(cn.own, func(_ string, kept bool) bool { return !kept })
}

// ids lists the sessions made here, kept ones too, oldest first.
func (cn *connection) ids() (ids []string) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	for id := range cn.own {
		ids = append(ids, id)
	}
	slices.Sort(ids) // ids are ordered by time
	return ids
}

// stopAll ends the connection and stops its sessions but the kept ones. It returns
// when nothing of them is left.
func (cn *connection) stopAll() error {
	cn.end()
	cn.creates.Wait()
	if cn.lease == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanUp)
	defer cancel()
	return cn.lease.Release(ctx)
}
