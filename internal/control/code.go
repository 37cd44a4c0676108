package control

import (
	"sync/atomic"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// code is a request's code, held until each of its sessions has a box or has ended. A queue
// can be long and code large, so that what is held together is bounded.
type code struct {
	tar   []byte
	users atomic.Int32
	held  *atomic.Int64
}

// holdCode gives nil for no code.
func (c *Control) holdCode(tar []byte) (*code, error) {
	n := int64(len(tar))
	if n == 0 {
		return nil, nil
	}
	if c.codeHeld.Add(n) > c.cfg.MaxCode {
		c.codeHeld.Add(-n)
		e := errdefs.Limitf(errdefs.RateLimited, "field code", "send it again when some of them run, or put the code in by PUT /v1/sessions/{id}/tar",
			"the sessions that wait for a box hold as much code as the server keeps, %d bytes", c.cfg.MaxCode)
		e.Scope, e.Retryable = errdefs.ScopePlatform, true
		return nil, e
	}
	h := &code{tar: tar, held: &c.codeHeld}
	h.users.Store(1)
	return h, nil
}

func (h *code) take() *code {
	if h != nil {
		h.users.Add(1)
	}
	return h
}

func (h *code) drop() {
	if h != nil && h.users.Add(-1) == 0 {
		h.held.Add(-int64(len(h.tar)))
	}
}
