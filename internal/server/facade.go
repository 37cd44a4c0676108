package server

import (
	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/e2b/envd"
	"github.com/dsec-platform/dsec/internal/e2b/tmpl"
)

// facade composes the E2B wire.
func (s *server) facade(ctl *control.Control, builds *build.Service) (*e2b.Facade, error) {
	tokens, err := e2b.OpenTokens(s.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	boxes := e2b.NewSandboxes(ctl, tokens)
	return e2b.New(e2b.Config{Sandboxes: boxes, Templates: tmpl.New(builds, s.log), Envd: s.envd(), Signed: envd.Signed, Domain: s.domain(), Network: s.cfg.File.Egress.Standard, Logger: s.log}), nil
}
