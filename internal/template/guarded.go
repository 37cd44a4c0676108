package template

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// guarded is how a registry is reached that its caller has named and the operator has not: at a public address
// only, whatever its name, its redirects or its token service resolve to. The address is looked at when
// it is dialled, so that a name cannot change its meaning in between.
var guarded http.RoundTripper = newGuarded(http.ProxyFromEnvironment)

func newGuarded(proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	t := remote.DefaultTransport.(*http.Transport).Clone()
	proxies := &proxies{}
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		u, err := proxy(r)
		if u == nil || err != nil {
			return u, err
		}
		proxies.add(u)
		return u, resolvesPublic(r.Context(), r.URL.Hostname()) // who dials is the proxy
	}
	open := &net.Dialer{}
	public := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return isPublic(at.Addr())
	}}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if proxies.has(address) {
			return open.DialContext(ctx, network, address)
		}
		return public.DialContext(ctx, network, address)
	}
	return t
}

func isPublic(a netip.Addr) error {
	if policy.ClassOf(a) == policy.Public {
		return nil
	}
	return errdefs.Policyf(errdefs.Forbidden, "address "+a.String(), "ask the operator to list the registry, or name a public one", "it is of this machine or of a private network, where no registry is that the operator has not listed")
}

// resolvesPublic looks at all that a name means here. What the proxy makes of it is the proxy's affair.
func resolvesPublic(ctx context.Context, host string) error {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil // the proxy may know it
	}
	for _, a := range addrs {
		if err := isPublic(a.Unmap()); err != nil {
			return err
		}
	}
	return nil
}

// proxies are the addresses of the operator's own proxies, as they are dialled.
type proxies struct{ seen sync.Map }

func (p *proxies) add(u *url.URL) {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	p.seen.Store(net.JoinHostPort(u.Hostname(), port), true)
}

func (p *proxies) has(address string) bool {
	_, ok := p.seen.Load(address)
	return ok
}
