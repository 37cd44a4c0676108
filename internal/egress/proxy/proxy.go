// Package proxy serves a box's policy to programs that use an HTTP proxy, where no device can be
// put into the box: what does not use it has no way out.
package proxy

import (
	"errors"
	"net"
	"sync"

	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/web"
)

// Server serves one box's listener until Close.
type Server struct {
	ln   net.Listener
	g    *gate.Gate
	busy sync.WaitGroup
	mu   sync.Mutex
	open map[net.Conn]struct{} // nil: closed
}

// Serve starts to accept.
func Serve(ln net.Listener, g *gate.Gate) *Server {
	s := &Server{ln: ln, g: g, open: map[net.Conn]struct{}{}}
	s.busy.Go(s.accept)
	return s
}

func (s *Server) accept() {
	for {
		conn, err := s.ln.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.g.Node.Log.Error("egress proxy stopped", "box", s.g.ID.Box, "err", err)
			}
			return
		}
		if !s.add(conn) {
			_ = conn.Close()
			continue
		}
		s.busy.Go(func() {
			defer s.remove(conn)
			web.ServeProxy(s.g, conn)
		})
	}
}

// add bounds the clients by the limit of connections, those that have not said yet what they want included.
func (s *Server) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil || len(s.open) >= s.g.Policy().Limits().Connections {
		return false
	}
	s.open[conn] = struct{}{}
	return true
}

func (s *Server) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

// Close ends every connection.
func (s *Server) Close() error {
	err := s.ln.Close()
	s.mu.Lock()
	for c := range s.open {
		_ = c.Close()
	}
	s.open = nil
	s.mu.Unlock()
	s.busy.Wait()
	return err
}

// Address is where boxes that have no device find their proxy. It is the same in every box: boxes share no network.
const Address = "127.0.0.1:13128"
