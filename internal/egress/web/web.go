// Package web judges connections by what their client says first: the server name of a TLS hello,
// and the Host of every HTTP/1 request, which it parses and writes anew, so that no two readers can
// see different requests in the same bytes. Where a rule names a credential it opens TLS, and adds the
// header. What it refuses it refuses in words where the client can be told any.
package web

import (
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/hello"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/egress/relay"
)

// Box is the box's end of a connection.
type Box interface {
	net.Conn
	relay.End
}

const recordHandshake = 22

// Serve reads what the box says and lets it out, or cuts it off. It returns when the connection has
// ended, and the flow with it.
func Serve(f *gate.Flow, box Box) {
	_ = box.SetReadDeadline(time.Now().Add(patience))
	early, h, err := peek(box, f.Gate())
	_ = box.SetReadDeadline(time.Time{})
	switch {
	case len(early) == 0:
		refuse(f, box, egress.Decision{Reason: policy.NotTLS, Detail: "ended before it said what it wants"})
	case early[0] == recordHandshake:
		serveTLS(f, box, early, h, err)
	default:
		c := &connection{f: f, box: box, in: newInput(&prefixed{Conn: box, early: early}, f.Gate())}
		c.serve()
	}
}

var errHello = errors.New("too many large hellos at once")

// peek reads until it is known whether this is TLS, and if so the whole hello.
func peek(box net.Conn, g *gate.Gate) (early []byte, h hello.Hello, err error) {
	large := false
	defer func() {
		if large {
			g.EndLarge()
		}
	}()
	buf := make([]byte, 2048)
	n := 0
	var p hello.Parser
	for {
		m, failed := box.Read(buf[n:])
		n += m
		if n > 0 && buf[0] != recordHandshake {
			return buf[:n], h, nil
		}
		if n > 0 {
			if h, err = p.Parse(buf[:n]); !errors.Is(err, hello.ErrMore) {
				return buf[:n], h, err
			}
		}
		if failed != nil {
			return buf[:n], h, hello.ErrMalformed
		}
		if n >= usualHead && !large {
			if large = g.BeginLarge(); !large {
				return buf[:n], h, errHello
			}
		}
		if n == len(buf) {
			buf = slices.Grow(buf, len(buf))[:2*len(buf)]
		}
	}
}

func refuse(f *gate.Flow, box Box, d egress.Decision) {
	f.Refuse(d)
	box.Abort()
	_ = box.Close()
	f.End("")
}

func serveTLS(f *gate.Flow, box Box, early []byte, h hello.Hello, err error) {
	g := f.Gate()
	if err != nil {
		refuse(f, box, egress.Decision{Reason: policy.NotTLS, Detail: err.Error()})
		return
	}
	name, _ := policy.Fold(h.Name)
	m, byName := g.Said(h.Name, f.Addr(), policy.TLS)
	d := egress.Decision{Name: clean(h.Name), Protocol: policy.TLS}
	switch {
	case !m.OK && h.Name == "":
		d.Reason = policy.ServerNameMissing
	case !m.OK:
		d.Reason = m.Reason
	case h.ECH && m.Protocol == policy.TLS && !m.ECH && slices.Contains(g.Node.Resolver.ECHConfigs(f.Context(), name), h.ConfigID):
		// The key is one that the server publishes: the true name is inside. Browsers send random ones where
		// they know none, and no answer of our resolver tells them one.
		d.Reason, d.Rule, d.Detail = policy.HelloEncrypted, m.Rule, "the outer name is allowed; the rule needs ech: allow"
	}
	if d.Reason != "" {
		if explainable(g, h.Name, h.ECH) {
			page(f, box, early, name, d)
			return
		}
		refuse(f, box, d)
		return
	}
	if !byName {
		name = ""
	}
	if m.Credential != "" {
		intercept(f, box, early, name, m)
		return
	}
	up, err := f.Dial()
	if err != nil {
		refuse(f, box, egress.Decision{Name: name, Rule: m.Rule, Protocol: policy.TLS, Reason: policy.DialFailed, Detail: gate.DialText(err)})
		return
	}
	world, err := relay.NewKernel(up)
	if err == nil {
		_, err = up.Write(early)
	}
	if err != nil || !f.Allow(name, m, egress.Decision{}) {
		_ = up.Close()
		box.Abort()
		_ = box.Close()
		f.End(policy.ConnectionReset)
		return
	}
	f.Sent(len(early))
	relay.Run(f, box, world)
}

// clean keeps records readable whatever a client says.
func clean(name string) string {
	if folded, ok := policy.Fold(name); ok {
		return folded
	}
	out := make([]byte, 0, 64)
	for i := 0; i < len(name) && i < 255; i++ {
		if c := name[i]; c > 0x20 && c < 0x7f {
			out = append(out, c)
		} else {
			out = append(out, '?')
		}
	}
	return string(out)
}

// prefixed gives bytes that were read before, then those of the connection.
type prefixed struct {
	net.Conn
	early []byte
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.early) > 0 {
		n := copy(b, p.early)
		p.early = p.early[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// counted counts what goes over an upstream connection.
type counted struct {
	net.Conn
	f *gate.Flow
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.f.Received(n)
	}
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 {
		c.f.Sent(n)
	}
	return n, err
}

var _ io.ReadWriter = (*counted)(nil)
