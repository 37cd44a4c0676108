package uplink

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/egress/proxy"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// proxied attaches a proxy to a namespace.
func (w *world) proxied(ns func() egress.Attachment, p *policy.Policy) (egress.Link, error) {
	a := ns()
	a.Box, a.Policy, a.Proxied = egress.Identity{Box: "b", Session: "s", Project: "p"}, p, true
	return w.net.Attach(context.Background(), a)
}

// A box without a device gets out by its own loopback, and by nothing else.
func TestProxyInsideTheBox(t *testing.T) {
	w := webWorld(t)
	ns := w.Box()
	netns := func() egress.Attachment { return egress.Attachment{Netns: ns.Open} }
	l, err := w.proxied(netns, whitelist(t, []string{"good.test"}))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(false)
	b := &testBox{Netns: ns, Link: l, w: w}
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return b.dial("tcp4", proxy.Address) }}
	c := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	tr.Proxy = func(r *http.Request) (u *url.URL, err error) { return r.URL.Parse("http://" + proxy.Address) }
	before := w.Uplink()
	if code, body := get(t, c, "http://evil.test/"); code != 403 || !strings.Contains(body, string(policy.NameNotAllowed)) {
		t.Errorf("refused: %d %s", code, body)
	}
	if _, err := b.dial("tcp4", "198.51.100.1:80"); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("past the proxy: %v", err)
	}
	if n := w.Uplink() - before; n != 0 {
		t.Errorf("%d packets left the node", n)
	}
	if code, body := get(t, c, "http://good.test/a"); code != 200 || !strings.Contains(body, "host good.test") {
		t.Errorf("allowed: %d %s", code, body)
	}
	// No program of the box can share the port, or have it on all addresses.
	if err := ns.Do(func() error {
		for _, addr := range []string{proxy.Address, "0.0.0.0:13128", "[::]:13128"} {
			if ln, err := reuse().Listen(t.Context(), "tcp", addr); err == nil {
				_ = ln.Close()
				t.Errorf("%s is taken a second time", addr)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// Nobody outside of the box is served.
	if conn, err := net.DialTimeout("tcp4", proxy.Address, time.Second); err == nil {
		_ = conn.Close()
		t.Error("the proxy is on the node's own loopback")
	}
	if r := l.Check("good.test", 443, policy.UDP); r.Allowed {
		t.Errorf("a proxy carries no UDP: %+v", r)
	}
	if err := l.Switch(t.Context(), compile(t, policy.Spec{Mode: policy.Deny})); err != nil {
		t.Fatal(err)
	}
	if code, body := get(t, c, "http://good.test/"); code != 403 || !strings.Contains(body, string(policy.PolicyDenies)) {
		t.Errorf("after the switch: %d %s", code, body)
	}
}

// The next daemon listens again, unless a program of the box does: then it says so.
func TestProxyPortTaken(t *testing.T) {
	w := webWorld(t)
	ns := w.Box()
	netns := func() egress.Attachment { return egress.Attachment{Netns: ns.Open, Resume: true} }
	fds := countFDs(t)
	p := whitelist(t, []string{"good.test"})
	l, err := w.proxied(netns, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(false); err != nil {
		t.Fatal(err)
	}
	var squatter net.Listener
	if err := ns.Do(func() (err error) { squatter, err = reuse().Listen(t.Context(), "tcp4", "0.0.0.0:13128"); return err }); err != nil {
		t.Fatal(err)
	}
	_, err = w.proxied(netns, p)
	if e := errdefs.From(err); err == nil || e.Class != errdefs.User || e.Reason != errdefs.Conflict || !strings.Contains(e.Error(), proxy.Address) {
		t.Errorf("a taken port: %v", err)
	}
	_ = squatter.Close()
	if l, err = w.proxied(netns, p); err != nil {
		t.Fatal(err)
	}
	_ = l.Close(false)
	// Connections of earlier tests end beside this one, and the runtime's own last.
	end := time.Now().Add(10 * time.Second)
	for countFDs(t) > fds && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := countFDs(t); n > fds {
		t.Errorf("%d descriptors are left", n-fds)
	}
	if s := w.net.Stats(); s.Boxes != 0 {
		t.Errorf("%+v", s)
	}
}

// reuse listens as a program that wants to share a port.
func reuse() *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
}
