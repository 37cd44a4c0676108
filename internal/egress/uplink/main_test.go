package uplink

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/credential"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/link"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

func TestMain(m *testing.M) {
	egresstest.Main(m, func(m *testing.M) int {
		code := m.Run()
		err := goleak.Find()
		for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); { // servers of net/http linger
			err = goleak.Find()
		}
		if err != nil && code == 0 {
			println(err.Error())
			return 1
		}
		return code
	})
}

// world is a lab with a network and helpers for what a box does.
type world struct {
	*egresstest.Lab
	t   testing.TB
	net *Network
}

func newWorld(t testing.TB) *world {
	l := egresstest.New(t)
	w := &world{Lab: l, t: t, net: New(l.Config())}
	t.Cleanup(func() { _ = w.net.Close() })
	return w
}

// newTrusted is a world whose network has projects' authorities; pem is that of the boxes' one.
func newTrusted(t testing.TB) (w *world, pem []byte) {
	l := egresstest.New(t)
	store, err := credential.Open(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	a, err := store.Authority("p")
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config()
	c.Credentials = store
	w = &world{Lab: l, t: t, net: New(c)}
	t.Cleanup(func() { _ = w.net.Close() })
	return w, a.PEM()
}

func compile(t testing.TB, s policy.Spec) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(s, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func whitelist(t testing.TB, domains []string, ips ...string) *policy.Policy {
	t.Helper()
	s := policy.Spec{Mode: policy.Whitelist}
	for _, d := range domains {
		x, err := policy.ParseDomain(d)
		if err != nil {
			t.Fatal(err)
		}
		s.Domains = append(s.Domains, x)
	}
	for _, i := range ips {
		x, err := policy.ParseRange(i)
		if err != nil {
			t.Fatal(err)
		}
		s.IPs = append(s.IPs, x)
	}
	return compile(t, s)
}

// testBox is a namespace with a link.
type testBox struct {
	*egresstest.Netns
	egress.Link
	w *world
}

func (b *testBox) Close() error { return b.Link.Close(false) }

func (w *world) attach(p *policy.Policy) *testBox { return w.attachAs(p, false) }

func (w *world) attachAs(p *policy.Policy, trusts bool) *testBox {
	w.t.Helper()
	ns := w.Box()
	l, err := w.net.Attach(context.Background(), egress.Attachment{Box: egress.Identity{Box: "b", Session: "s", Project: "p"}, Netns: ns.Open, Policy: p, Trusts: trusts})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = l.Close(false) })
	return &testBox{Netns: ns, Link: l, w: w}
}

// dial connects from the box.
func (b *testBox) dial(network, addr string) (c net.Conn, err error) {
	err = b.Do(func() (err error) { c, err = net.DialTimeout(network, addr, 10*time.Second); return err })
	return c, err
}

// lookup asks the box's name server, and gives addresses or an error.
func (b *testBox) lookup(name string) ([]netip.Addr, error) {
	return b.lookupOver("udp", link.DNSAddr.String()+":53", name)
}

func (b *testBox) lookupOver(network, server, name string) ([]netip.Addr, error) {
	r := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return b.dial(network, server) }}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return r.LookupNetIP(ctx, "ip4", name+".")
}

// must resolves a name that has to be there.
func (b *testBox) must(name string) netip.Addr {
	b.w.t.Helper()
	a, err := b.lookup(name)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return a[0].Unmap()
}

func notFound(err error) bool {
	d, ok := errors.AsType[*net.DNSError](err)
	return ok && d.IsNotFound
}

func (b *testBox) resolverDial(_ context.Context, network, _ string) (net.Conn, error) {
	return b.dial(network, link.DNSAddr.String()+":53")
}

func countFDs(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
