package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

const maxDetail = 200

// connection serves the requests of one client connection, one after the other.
type connection struct {
	f   *gate.Flow // of a box's own connection; nil behind an explicit proxy
	g   *gate.Gate // behind an explicit proxy
	box net.Conn
	in  *input
	// name is the server that TLS was opened for; every request must be for it.
	name string
	up   *upstream
}

// upstream is the connection to where requests go.
type upstream struct {
	f    *gate.Flow
	name string
	cred string
	conn net.Conn
	out  *bufio.Writer
	in   *input
}

// refusal is why a request is not let out, and what its client is told.
type refusal struct {
	status int
	reason policy.Reason
	rule   string
	detail string
}

// serve answers requests until the client or a refusal ends it, and ends the flow.
func (c *connection) serve() {
	for c.one() {
	}
	c.drop()
	c.in.done()
	_ = c.box.Close()
	if c.f != nil {
		c.f.End("")
	}
}

func (c *connection) drop() {
	if c.up == nil {
		return
	}
	if c.up.conn != nil {
		_ = c.up.conn.Close()
	}
	if c.up.in != nil {
		c.up.in.done()
	}
	if c.up.f != c.f {
		c.up.f.End("")
	}
	c.up = nil
}

// one handles a request; false ends the connection.
func (c *connection) one() bool {
	req, err := c.in.request()
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
			var bad *badRequest
			if errors.As(err, &bad) {
				c.deny(nil, refusal{status: http.StatusBadRequest, reason: policy.NotHTTP, detail: bad.Error()})
			}
		}
		return false
	}
	if no := c.route(req); no != nil {
		c.deny(req, *no)
		return false
	}
	return c.forward(req)
}

// route finds where a request goes, and makes sure that c.up goes there.
func (c *connection) route(req *http.Request) *refusal {
	if req.Method == http.MethodConnect {
		return &refusal{status: http.StatusForbidden, reason: policy.MethodRefused}
	}
	if c.f == nil {
		return c.routeProxy(req)
	}
	if req.URL.IsAbs() || req.URL.Host != "" {
		return &refusal{status: http.StatusForbidden, reason: policy.HostRefused, detail: "an absolute request is for proxies"}
	}
	proto := policy.HTTP
	if c.name != "" {
		proto = policy.TLS
	}
	name, no := hostName(req.Host, c.f.Addr().Port())
	if no != nil {
		return no
	}
	m, byName := c.f.Gate().Said(name, c.f.Addr(), proto)
	if m.OK && c.name != "" && name != c.name {
		m = policy.Match{Reason: policy.HostRefused}
	}
	if !m.OK {
		return &refusal{status: http.StatusForbidden, reason: m.Reason}
	}
	if !byName {
		name = ""
	}
	if !c.f.Allow(name, m, egress.Decision{Kind: egress.Request, Detail: detail(req), Credential: m.Credential}) {
		return &refusal{status: http.StatusForbidden, reason: policy.PolicyChanged}
	}
	if c.up == nil {
		c.up = &upstream{f: c.f}
	}
	c.up.name, c.up.cred = name, m.Credential
	return nil
}

// hostName takes the name from a Host, whose port must be the connection's.
func hostName(host string, port uint16) (string, *refusal) {
	name := host
	if h, p, err := net.SplitHostPort(host); err == nil {
		if p != strconv.Itoa(int(port)) {
			return "", &refusal{status: http.StatusForbidden, reason: policy.HostRefused, detail: "the port of Host is not the connection's"}
		}
		name = h
	}
	if folded, ok := policy.Fold(name); ok {
		return folded, nil
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return name, nil
	}
	return "", &refusal{status: http.StatusForbidden, reason: policy.HostRefused}
}

func detail(req *http.Request) string {
	s := req.Method + " " + req.URL.EscapedPath()
	if len(s) > maxDetail {
		s = s[:maxDetail] + "…"
	}
	return s
}

// deny records and answers a refusal in words; the connection ends with it.
func (c *connection) deny(req *http.Request, no refusal) {
	d := egress.Decision{Kind: egress.Request, Protocol: policy.HTTP, Reason: no.reason, Rule: no.rule, Detail: no.detail}
	if req != nil {
		d.Name = clean(hostOnly(req))
		if d.Detail == "" {
			d.Detail = detail(req)
		}
	}
	switch {
	case c.f != nil:
		c.f.Refuse(d)
	case req != nil:
		d.Port = requestPort(req)
		c.g.Refuse(d)
	default:
		c.g.Refuse(d)
	}
	say(c.box, req, no, d.Name, c.gate().ID.Session)
	if req != nil && req.Body != nil && req.Body != http.NoBody {
		linger(c.box)
	}
}

func (c *connection) gate() *gate.Gate {
	if c.f != nil {
		return c.f.Gate()
	}
	return c.g
}

func hostOnly(req *http.Request) string {
	host := req.Host
	if req.URL.Host != "" {
		host = req.URL.Host
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}
