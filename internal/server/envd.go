package server

import (
	"context"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/e2b/envd"
)

// envd serves the agent's port of the facade's sandboxes.
func (s *server) envd() *envd.Handler {
	h := envd.New(envd.Config{Logger: s.log, Sandbox: func(ctx context.Context) envd.Sandbox {
		t := e2b.TargetOf(ctx)
		return envd.Sandbox{ID: t.ID, Token: t.Token(), Guest: t.Guest}
	}})
	s.onClose(func() error { h.Close(); return nil })
	return h
}
