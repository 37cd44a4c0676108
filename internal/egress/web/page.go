package web

import (
	"crypto/tls"
	"net/http"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// page ends a TLS connection that is refused by telling its client why: the box trusts its project's authority, which signs
// a certificate of the refused name, and the request is answered here. Nothing of it leaves the node. What
// is not HTTP/1 inside is cut off like every other refusal.
func page(f *gate.Flow, box Box, early []byte, name string, d egress.Decision) {
	g := f.Gate()
	cert, err := g.Node.Credentials.Certificate(g.ID.Project, name)
	if err != nil {
		refuse(f, box, d)
		return
	}
	f.Refuse(d)
	defer f.End("")
	t := tls.Server(&prefixed{Conn: box, early: early}, &tls.Config{
		Certificates: []tls.Certificate{*cert}, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
	})
	_ = t.SetDeadline(time.Now().Add(toldFor))
	if err = t.HandshakeContext(f.Context()); err == nil {
		var req *http.Request
		in := newInput(t, g)
		defer in.done()
		if req, err = in.request(); err == nil {
			_ = t.SetDeadline(time.Now().Add(toldFor))
			say(t, req, refusal{status: http.StatusForbidden, reason: d.Reason, rule: d.Rule, detail: d.Detail}, d.Name, g.ID.Session)
			linger(t)
		}
	}
	if err != nil {
		box.Abort()
	}
	_ = box.Close()
}

// explainable tells whether a refused hello's client may be told why: it said a name that a certificate can have,
// hides none, and was not told too often.
func explainable(g *gate.Gate, name string, encrypted bool) bool {
	_, ok := policy.Fold(name)
	return ok && !encrypted && g.Explains()
}
