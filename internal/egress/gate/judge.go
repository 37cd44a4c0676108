package gate

import (
	"context"
	"net/netip"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/dns"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// Verdict is what is known of a connection when it begins.
type Verdict struct {
	// Addr is where it goes.
	Addr netip.AddrPort
	// Reason refuses it; empty: it may begin.
	Reason policy.Reason
	// Match allows it unread. Where it is not OK the first bytes decide.
	Match policy.Match
	// Name is the pinned name that the match is about.
	Name string
	// others are addresses of the name that are tried when Addr does not answer.
	others []netip.Addr
	state  *state
}

// Judge judges a connection to an address when its first packet comes. A name that is pinned to the
// address counts as if the box had said it; where a rule wants the bytes read, they are.
func (g *Gate) Judge(to netip.AddrPort, transport policy.Protocol) Verdict {
	st := g.state.Load()
	p := st.policy
	v := Verdict{Addr: to, state: st}
	if transport == policy.TCP && g.explainer(to) {
		return v // what it says is refused in words
	}
	a := to.Addr()
	if v.Reason = p.Address(a); v.Reason != "" && p.Mode() != policy.Deny {
		return v
	}
	if g.Node.Never(a) {
		v.Reason = policy.AddressForbidden
		return v
	}
	byAddr := p.Addr(a, to.Port(), transport)
	v.Reason = byAddr.Reason
	read, secret := false, false
	for _, name := range g.pins.Names(a) {
		m := p.Host(name, to.Port(), transport)
		switch {
		case !m.OK:
			if v.Reason == policy.AddressNotAllowed {
				v.Reason, v.Name = m.Reason, name
			}
		case m.Protocol == policy.TCP || m.Protocol == policy.UDP:
			if !v.Match.OK {
				v.Match, v.Name = m, name
			}
		default:
			read = true
			secret = secret || m.Credential != ""
		}
	}
	switch {
	case secret, read && !v.Match.OK && !byAddr.OK: // where it may go unread anyway, reading would stop nothing
		v.Match, v.Name, v.Reason = policy.Match{}, "", ""
	case v.Match.OK:
		v.Reason = ""
	case byAddr.OK:
		v.Match, v.Name, v.Reason = byAddr, "", ""
	}
	return v
}

// JudgeName judges a connection by name, as a proxy is asked for it; the name is resolved and pinned.
func (g *Gate) JudgeName(ctx context.Context, name string, port uint16) Verdict {
	st := g.state.Load()
	v := Verdict{Addr: netip.AddrPortFrom(netip.Addr{}, port), state: st}
	if a, err := netip.ParseAddr(name); err == nil {
		return g.Judge(netip.AddrPortFrom(a.Unmap(), port), policy.TCP)
	}
	folded, ok := policy.Fold(name)
	if !ok {
		v.Reason = policy.NameNotAllowed
		return v
	}
	v.Name = folded
	m := st.policy.Host(folded, port, policy.TCP)
	if !m.OK {
		v.Reason = m.Reason
		return v
	}
	addrs, found, _ := g.Resolve(ctx, folded)
	if !found.OK {
		v.Reason = found.Reason
		return v
	}
	v.Addr, v.others = netip.AddrPortFrom(addrs[0], port), addrs[1:]
	if m.Protocol == policy.TCP {
		v.Match = m
	}
	return v
}

// Said judges the name that a client says it wants at an address, as proto. byName tells that the match is about
// the name, and not about the address whatever the name.
func (g *Gate) Said(name string, to netip.AddrPort, proto policy.Protocol) (m policy.Match, byName bool) {
	p := g.Policy()
	folded, ok := policy.Fold(name)
	refused := policy.ServerNameRefused
	if proto == policy.HTTP {
		refused = policy.HostRefused
	}
	if to.Addr() == policy.Explainer {
		return policy.Match{Reason: g.why(name, to.Port(), refused)}, false
	}
	byAddr := p.Addr(to.Addr(), to.Port(), policy.TCP)
	if ok {
		m = p.Host(folded, to.Port(), policy.TCP)
	}
	fits := m.OK && (m.Protocol == proto || m.Protocol == policy.TCP)
	switch {
	case fits && g.pins.Has(folded, to.Addr()):
		return m, true
	case byAddr.OK:
		return byAddr, false
	case fits:
		return policy.Match{Reason: policy.NameUnpinned}, false
	}
	return policy.Match{Reason: refused}, false
}

// Resolve gives the addresses of a name that the box may be told, and pins them. Private and
// forbidden ones are dropped and recorded; the name must be allowed.
func (g *Gate) Resolve(ctx context.Context, name string) (addrs []netip.Addr, m policy.Match, ttl time.Duration) {
	st := g.state.Load()
	m, wild := st.policy.Name(name)
	if !m.OK {
		return nil, m, 0
	}
	if wild && !st.names.Admit(name) {
		return nil, policy.Match{Reason: policy.LimitNames}, 0
	}
	ans, err := g.lookup(ctx, name)
	if err != nil {
		return nil, policy.Match{Reason: reasonOf(err)}, 0
	}
	dropped := policy.Reason("")
	for _, a := range ans.Addrs {
		why := st.policy.Address(a)
		if why == "" && g.Node.Never(a) {
			why = policy.AddressForbidden
		}
		if why == "" {
			addrs = append(addrs, a)
			continue
		}
		dropped = why
		g.Refuse(egress.Decision{Kind: egress.Query, Name: name, Addr: a, Protocol: "dns", Reason: why, Detail: "an answer that is not passed on"})
	}
	if len(addrs) == 0 {
		return nil, policy.Match{Reason: dropped}, 0
	}
	g.pins.Add(name, addrs...)
	if g.state.Load() != st { // a switch came between: it must not leave a pin that it forgot
		g.pins.Keep(func(n string) bool { m, _ := g.Policy().Name(n); return m.OK })
	}
	return addrs, m, ans.TTL
}

// Query answers one DNS message of the box; nil: none.
func (g *Gate) Query(ctx context.Context, msg []byte) []byte {
	q, err := dns.ParseQuery(msg)
	if err != nil {
		g.Refuse(egress.Decision{Kind: egress.Query, Protocol: "dns", Reason: policy.QueryMalformed})
		return nil
	}
	d := egress.Decision{Kind: egress.Query, Protocol: "dns", Detail: q.Type, Name: q.Name, Op: g.ID.Cause()}
	if !g.state.Load().queries.Take(1) {
		d.Reason = policy.LimitDNS
		g.Refuse(d)
		return q.Failed()
	}
	name, ok := policy.Fold(q.Name)
	if !ok {
		d.Name, d.Reason = printable(q.Name), policy.NameNotAllowed
		g.Refuse(d)
		return q.NoName()
	}
	d.Name = name
	if !q.WantsAddrs() {
		m, _ := g.Policy().Name(name)
		if !m.OK {
			d.Reason = m.Reason
			g.Refuse(d)
			return g.refusedName(q, name, m.Reason)
		}
		// No other type goes upstream: what a TXT or HTTPS record says is not needed to connect by IPv4,
		// and would be a way to carry data.
		d.Verdict, d.Rule = egress.Allow, m.Rule
		g.Record(d)
		return q.NoData()
	}
	addrs, m, ttl := g.Resolve(ctx, name)
	if !m.OK {
		d.Reason = m.Reason
		g.Refuse(d)
		if m.Reason == policy.ResolverFailed || m.Reason == policy.LimitNames {
			return q.Failed()
		}
		return g.refusedName(q, name, m.Reason)
	}
	d.Verdict, d.Rule, d.Addr = egress.Allow, m.Rule, addrs[0]
	g.Record(d)
	return q.Answer(addrs, ttl)
}
