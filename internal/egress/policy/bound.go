package policy

import (
	"net/netip"
	"strings"
)

// bound is a compiled Bound; the nil *bound allows all.
type bound struct {
	src  *Bound
	any  bool
	pats []pattern
	nets []netip.Prefix
}

func (ps *Problems) bound(b *Bound) *bound {
	if b == nil {
		return nil
	}
	out := &bound{src: b}
	for _, d := range b.Domains {
		if d == "*" {
			out.any = true
			continue
		}
		pat, ok := parsePattern(d)
		if !ok {
			ps.add("bound.domains", "write names like example.com, *.example.com or *", "%q is not a domain name", d)
		}
		out.pats = append(out.pats, pat)
	}
	for _, c := range b.IPs {
		p, err := netip.ParsePrefix(c)
		if err != nil {
			ps.add("bound.ips", "write CIDRs like 10.20.0.0/16", "%q is not a CIDR", c)
			continue
		}
		out.nets = append(out.nets, p.Masked())
	}
	return out
}

func (b *bound) mode(ps *Problems, m Mode) {
	if b != nil && m == Open && !b.src.Open {
		ps.add("egress_policy", "use whitelist", "the project does not let its sessions be open")
	}
}

func (b *bound) name(q pattern) bool {
	if b == nil || b.any {
		return true
	}
	for _, p := range b.pats {
		if p.covers(q) {
			return true
		}
	}
	return false
}

func (b *bound) prefix(p netip.Prefix) bool { return b == nil || inside(p, b.nets) }

func (b *bound) names() string { return list(b.src.Domains) }

func (b *bound) ranges() string { return list(b.src.IPs) }

func list(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}

// limits fills defaults and holds them to the project's maxima.
func (ps *Problems) limits(l Limits, b *bound) Limits {
	d := Defaults()
	most := Limits{}
	if b != nil {
		most = b.src.Limits
	}
	return Limits{
		Bandwidth:         limit(ps, "bandwidth", l.Bandwidth, d.Bandwidth, most.Bandwidth),
		Bytes:             limit(ps, "bytes", l.Bytes, d.Bytes, most.Bytes),
		Connections:       limit(ps, "connections", l.Connections, d.Connections, most.Connections),
		ConnectsPerSecond: limit(ps, "connects_per_second", l.ConnectsPerSecond, d.ConnectsPerSecond, most.ConnectsPerSecond),
		DNSPerSecond:      limit(ps, "dns_per_second", l.DNSPerSecond, d.DNSPerSecond, most.DNSPerSecond),
		DNSNamesPerMinute: limit(ps, "dns_names_per_minute", l.DNSNamesPerMinute, d.DNSNamesPerMinute, most.DNSNamesPerMinute),
		AuditPerSecond:    limit(ps, "audit_per_second", l.AuditPerSecond, d.AuditPerSecond, most.AuditPerSecond),
		RefusalsPerSecond: limit(ps, "refusals_per_second", l.RefusalsPerSecond, d.RefusalsPerSecond, most.RefusalsPerSecond),
	}
}

// limit gives the value in force: the asked one, else the default, at most the project's.
func limit[T int | int64](ps *Problems, field string, asked, def, most T) T {
	switch {
	case asked < 0:
		ps.add("limits."+field, "write a positive number, or leave it out", "%d is negative", asked)
	case asked > 0 && most > 0 && asked > most:
		ps.add("limits."+field, "ask for less", "%d is more than the project's %d", asked, most)
	case asked > 0:
		return asked
	case most > 0 && (def == 0 || most < def):
		return most
	}
	return def
}
