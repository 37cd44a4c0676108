// Package resolve asks the operator's name servers on behalf of all boxes of a node: one cache,
// one question in flight a name. It believes nothing but an answer to the question that it asked.
package resolve

import (
	"bufio"
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sync/singleflight"
)

var (
	// ErrNoName says that the name does not exist, or has no IPv4 address.
	ErrNoName = errors.New("the name does not exist or has no IPv4 address")
	// ErrFailed says that no name server answered, or none with an answer.
	ErrFailed = errors.New("no name server answered")
)

const (
	minTTL      = 5 * time.Second
	maxTTL      = 5 * time.Minute
	negativeTTL = 3 * time.Second
	maxCache    = 16 << 10
	maxAddrs    = 32
	tryTimeout  = 2 * time.Second
	tries       = 2 // of each server
)

// Answer is what a name resolves to.
type Answer struct {
	Addrs []netip.Addr
	TTL   time.Duration // what is left of it
}

// Resolver is safe for concurrent use.
type Resolver struct {
	servers []netip.AddrPort
	flight  singleflight.Group
	mu      sync.Mutex
	cache   map[key]entry
	now     func() time.Time
}

type key struct {
	name string
	typ  dnsmessage.Type
}

type entry struct {
	addrs   []netip.Addr
	configs []byte // ids of ECH keys
	err     error
	until   time.Time
}

// New makes a resolver over servers; none means those of /etc/resolv.conf.
func New(servers []netip.AddrPort) *Resolver {
	if len(servers) == 0 {
		servers = system("/etc/resolv.conf")
	}
	return &Resolver{servers: servers, cache: map[key]entry{}, now: time.Now}
}

// system reads the nameserver lines of a resolv.conf.
func system(path string) []netip.AddrPort {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []netip.AddrPort
	for s := bufio.NewScanner(f); s.Scan(); {
		if w := strings.Fields(s.Text()); len(w) > 1 && w[0] == "nameserver" {
			if a, err := netip.ParseAddr(w[1]); err == nil {
				out = append(out, netip.AddrPortFrom(a, 53))
			}
		}
	}
	return out
}

// Lookup gives the IPv4 addresses of a folded name.
func (r *Resolver) Lookup(ctx context.Context, name string) (Answer, error) {
	e, err := r.get(ctx, key{name, dnsmessage.TypeA})
	if err == nil {
		err = e.err
	}
	if err != nil {
		return Answer{}, err
	}
	return Answer{Addrs: e.addrs, TTL: max(e.until.Sub(r.now()), time.Second)}, nil
}

// ECHConfigs gives the ids of the keys that a name publishes for encrypted hellos; none when it publishes none or the
// question fails.
func (r *Resolver) ECHConfigs(ctx context.Context, name string) []byte {
	e, err := r.get(ctx, key{name, dnsmessage.TypeHTTPS})
	if err != nil {
		return nil
	}
	return e.configs
}

func (r *Resolver) get(ctx context.Context, k key) (entry, error) {
	r.mu.Lock()
	e, ok := r.cache[k]
	r.mu.Unlock()
	if ok && r.now().Before(e.until) {
		return e, nil
	}
	// The question goes on when this caller leaves: others may wait for it.
	ch := r.flight.DoChan(k.typ.String()+k.name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(max(1, len(r.servers)))*tries*tryTimeout)
		defer cancel()
		e := r.ask(ctx, k)
		if !errors.Is(e.err, ErrFailed) {
			r.keep(k, e)
		}
		return e, nil
	})
	select {
	case <-ctx.Done():
		return entry{}, ErrFailed
	case res := <-ch:
		return res.Val.(entry), nil
	}
}

func (r *Resolver) keep(k key, e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.cache) >= maxCache {
		n := 0
		for old := range r.cache { // any: the order of a map is as good as random
			delete(r.cache, old)
			if n++; n >= maxCache/8 {
				break
			}
		}
	}
	r.cache[k] = e
}

// ask tries every server in turn.
func (r *Resolver) ask(ctx context.Context, k key) entry {
	for range tries {
		for _, s := range r.servers {
			m, err := exchange(ctx, s, k)
			if err != nil {
				continue
			}
			switch m.RCode {
			case dnsmessage.RCodeSuccess:
				return r.read(k, m)
			case dnsmessage.RCodeNameError:
				return entry{err: ErrNoName, until: r.now().Add(negativeTTL)}
			}
		}
	}
	return entry{err: ErrFailed}
}

// read takes the addresses at the end of the chain of aliases that starts at the name.
func (r *Resolver) read(k key, m *dnsmessage.Message) entry {
	at := k.name
	ttl := maxTTL
	e := entry{}
	for range 16 {
		next := ""
		for _, a := range m.Answers {
			if !same(a.Header.Name.String(), at) {
				continue
			}
			switch body := a.Body.(type) {
			case *dnsmessage.CNAMEResource:
				next = fold(body.CNAME.String())
			case *dnsmessage.AResource:
				if k.typ == dnsmessage.TypeA && len(e.addrs) < maxAddrs {
					e.addrs = append(e.addrs, netip.AddrFrom4(body.A))
				}
			case *dnsmessage.HTTPSResource:
				e.configs = append(e.configs, configIDs(body.SVCBResource)...)
			default:
				continue
			}
			ttl = min(ttl, time.Duration(a.Header.TTL)*time.Second)
		}
		if next == "" || len(e.addrs) > 0 {
			break
		}
		at = next
	}
	if k.typ == dnsmessage.TypeA && len(e.addrs) == 0 {
		return entry{err: ErrNoName, until: r.now().Add(negativeTTL)}
	}
	e.until = r.now().Add(max(ttl, minTTL))
	return e
}

func fold(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func same(wire, folded string) bool { return strings.EqualFold(strings.TrimSuffix(wire, "."), folded) }
