package web

import (
	"crypto/tls"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// intercept opens TLS with a certificate of the project's authority, so that a credential can be
// added to the requests inside.
func intercept(f *gate.Flow, box Box, early []byte, name string, m policy.Match) {
	g := f.Gate()
	d := egress.Decision{Name: name, Rule: m.Rule, Protocol: policy.TLS, Credential: m.Credential}
	if g.Node.Credentials == nil {
		d.Reason = policy.CredentialMissing
		refuse(f, box, d)
		return
	}
	cert, err := g.Node.Credentials.Certificate(g.ID.Project, name)
	if err != nil {
		d.Reason, d.Detail = policy.CredentialMissing, err.Error()
		refuse(f, box, d)
		return
	}
	t := tls.Server(&prefixed{Conn: box, early: early}, &tls.Config{
		Certificates: []tls.Certificate{*cert}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12,
	})
	_ = t.SetDeadline(time.Now().Add(patience))
	if err := t.HandshakeContext(f.Context()); err != nil {
		d.Reason, d.Detail = policy.NotTLS, "the box does not trust the project's authority: "+err.Error()
		refuse(f, box, d)
		return
	}
	_ = t.SetDeadline(time.Time{})
	c := &connection{f: f, box: t, in: newInput(t, g), name: name}
	c.serve()
}
