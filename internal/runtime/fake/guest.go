package fake

import (
	"context"
	"net"
	"sync"

	"github.com/dsec-platform/dsec/internal/runtime"
)

type guestProcess struct {
	mu    sync.Mutex
	conns []net.Conn
}

func startGuest(string, *runtime.Claim) (*guestProcess, error) { return &guestProcess{}, nil }

func (g *guestProcess) dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns = append(g.conns, far)
	return near, nil
}

func (g *guestProcess) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		_ = c.Close()
	}
}
