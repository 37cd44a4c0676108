package mcp

import (
	"context"
	"slices"
	"sync"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

const (
	// cleanUp bounds how long the stop of what a connection made is awaited.
	cleanUp = 30 * time.Second
	// beat is how often a connection says that its sessions' owner lives.
	beat = 15 * time.Second
)

// connection is one client of the protocol, with the sessions it made.
type connection struct {
	c   *dsec.Client
	max int

	ctx context.Context // ends with the connection
	end context.CancelFunc

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
		go cn.keepAlive(id)
	}
	cn.creates.Done()
}

// keepAlive tells the server that the session's owner lives, until the session or the
// connection ends.
func (cn *connection) keepAlive(id string) {
	_ = cn.c.Session(id).KeepAlive(cn.ctx, beat) // its error says that the session has ended
}

// forget drops a session that was stopped.
func (cn *connection) forget(id string) {
	cn.mu.Lock()
	defer cn.mu.Unlock()
	delete(cn.own, id)
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
	cn.mu.Lock()
	var ids []string
	for id, kept := range cn.own {
		if !kept {
			ids = append(ids, id)
		}
	}
	cn.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanUp)
	defer cancel()
	results, err := cn.c.Stop(ctx, dsec.ByIDs(ids...), "its MCP connection has ended")
	for _, r := range results {
		if e := dsec.FromWire(r.GetError()); e != nil && err == nil {
			err = e
		}
	}
	return err
}
