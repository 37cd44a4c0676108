package node

import (
	"context"
	"sync"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// flight runs one function at a time; callers that come while it runs share its
// outcome. The function does not end with its callers: who starts a reclaim or a
// connection may go away, the next caller still gets the benefit. The zero value is ready.
type flight struct {
	mu  sync.Mutex
	now *flightCall
}

type flightCall struct {
	done chan struct{}
	err  error
}

// do runs fn in wg, or joins the run in progress, and waits for its end or ctx's.
func (f *flight) do(ctx context.Context, wg *sync.WaitGroup, fn func() error) error {
	f.mu.Lock()
	c := f.now
	if c == nil {
		c = &flightCall{done: make(chan struct{})}
		f.now = c
		wg.Go(func() {
			c.err = fn()
			f.mu.Lock()
			f.now = nil
			f.mu.Unlock()
			close(c.done)
		})
	}
	f.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return errdefs.From(ctx.Err())
	}
}
