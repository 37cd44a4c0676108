package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/egress/relay"
)

// ServeProxy serves a connection of a client that uses an explicit proxy: CONNECT, judged like a
// connection to the name, and absolute requests, judged one by one. It returns when the connection has ended.
func ServeProxy(g *gate.Gate, conn net.Conn) {
	k, err := relay.NewKernel(conn)
	if err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	in := newInput(conn, g)
	req, err := in.request()
	_ = conn.SetReadDeadline(time.Time{})
	c := &connection{g: g, box: conn, in: in}
	defer in.done()
	if err != nil {
		var bad *badRequest
		if errors.As(err, &bad) {
			c.deny(nil, refusal{status: http.StatusBadRequest, reason: policy.NotHTTP, detail: bad.Error()})
		}
		_ = conn.Close()
		return
	}
	if req.Method == http.MethodConnect {
		serveConnect(c, k, req)
		return
	}
	if no := c.route(req); no != nil {
		c.deny(req, *no)
	} else if c.forward(req) {
		c.serve()
		return
	}
	c.drop()
	_ = conn.Close()
}

func requestPort(req *http.Request) uint16 {
	_, p, err := net.SplitHostPort(req.Host)
	if err != nil {
		_, p, _ = net.SplitHostPort(req.URL.Host)
	}
	if n, err := strconv.ParseUint(p, 10, 16); err == nil {
		return uint16(n)
	}
	if req.Method == http.MethodConnect {
		return 443
	}
	return 80
}

func serveConnect(c *connection, k *relay.Kernel, req *http.Request) {
	host, port := hostOnly(req), requestPort(req)
	v := c.g.JudgeName(req.Context(), host, port)
	var f *gate.Flow
	why := v.Reason
	if why == "" {
		f, why = c.g.Open(v, policy.TCP)
	}
	if why != "" {
		c.deny(req, refusal{status: http.StatusForbidden, reason: why})
		_ = c.box.Close()
		return
	}
	f.OnCut(k.Abort)
	box := &tunnelled{Kernel: k, in: c.in}
	const yes = "HTTP/1.1 200 Connection established\r\n\r\n"
	if !v.Match.OK {
		if _, err := io.WriteString(k, yes); err != nil {
			_ = k.Close()
			f.End(policy.ConnectionReset)
			return
		}
		Serve(f, box)
		return
	}
	up, err := f.Dial()
	var world *relay.Kernel
	if err == nil {
		world, err = relay.NewKernel(up)
	}
	if err != nil {
		f.Refuse(egress.Decision{Name: v.Name, Rule: v.Match.Rule, Reason: policy.DialFailed, Detail: gate.DialText(err)})
		say(k, req, refusal{status: http.StatusBadGateway, reason: policy.DialFailed, detail: gate.DialText(err)}, v.Name, c.g.ID.Session)
		_ = k.Close()
		f.End("")
		return
	}
	if _, err := io.WriteString(k, yes); err != nil || !f.Allow(v.Name, v.Match, egress.Decision{}) {
		k.Abort()
		world.Abort()
		f.End(policy.ConnectionReset)
		return
	}
	relay.Run(f, box, world)
}

// tunnelled is a proxy's client after CONNECT: what it sent along with the request comes first.
type tunnelled struct {
	*relay.Kernel
	in *input
}

func (t *tunnelled) Read(b []byte) (int, error) {
	if t.in.Buffered() > 0 {
		return t.in.Read(b)
	}
	return t.Kernel.Read(b)
}

// Pump implements relay.End.
func (t *tunnelled) Pump(dst relay.Sink, w relay.Way) error {
	if n := t.in.Buffered(); n > 0 {
		early, _ := t.in.Peek(n)
		if err := relay.WriteAll(dst, early, w); err != nil {
			return err
		}
		_, _ = t.in.Discard(n)
	}
	return t.Kernel.Pump(dst, w)
}

// routeProxy judges an absolute request by the name in its URL.
func (c *connection) routeProxy(req *http.Request) *refusal {
	if req.URL.Scheme != "http" || req.URL.Host == "" {
		return &refusal{status: http.StatusForbidden, reason: policy.MethodRefused, detail: "a proxy takes CONNECT and absolute http:// requests"}
	}
	host, port := hostOnly(req), requestPort(req)
	v := c.g.JudgeName(req.Context(), host, port)
	if v.Reason != "" {
		return &refusal{status: http.StatusForbidden, reason: v.Reason}
	}
	if c.up != nil && (c.up.name != v.Name || c.up.f.Addr().Port() != port || v.Name == "" && c.up.f.Addr() != v.Addr) {
		c.drop()
	}
	if c.up == nil {
		f, why := c.g.Open(v, policy.TCP)
		if why != "" {
			return &refusal{status: http.StatusForbidden, reason: why}
		}
		f.OnCut(func() { abort(c.box) })
		c.up = &upstream{f: f, name: v.Name}
	}
	m := v.Match
	if !m.OK {
		m, _ = c.g.Said(host, c.up.f.Addr(), policy.HTTP)
	}
	if !m.OK {
		return &refusal{status: http.StatusForbidden, reason: m.Reason}
	}
	c.up.cred = m.Credential
	if !c.up.f.Allow(v.Name, m, egress.Decision{Kind: egress.Request, Detail: detail(req), Credential: m.Credential}) {
		return &refusal{status: http.StatusForbidden, reason: policy.PolicyChanged}
	}
	return nil
}
