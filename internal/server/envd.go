package server

import (
	"context"
	"net"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/e2b/envd"
)

// domain is where SDKs are told to find the ports of sandboxes.
func (s *server) domain() string {
	if s.cfg.Domain != "" {
		return s.cfg.Domain
	}
	_, port, _ := net.SplitHostPort(s.cfg.Listen) // it was listened on
	return net.JoinHostPort("localhost", port)
}

// envd serves the agent's port of the facade's sandboxes.
func (s *server) envd() *envd.Handler {
	h := envd.New(envd.Config{Logger: s.log, Sandbox: func(ctx context.Context) envd.Sandbox {
		t := e2b.TargetOf(ctx)
		return envd.Sandbox{ID: t.ID, Token: t.Token(), Env: t.Env(), User: t.User(), Workdir: t.Workdir(), Guest: t.Guest}
	}})
	s.onClose(func() error { h.Close(); return nil })
	return h
}
