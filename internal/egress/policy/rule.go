package policy

import "net/netip"

// rule is one compiled entry. Either name or prefix says what it is about.
type rule struct {
	text       string // as a record names it: "allowed_domains[0] api.example.com"
	name       pattern
	prefix     netip.Prefix // invalid: a name rule
	ports      []span       // nil: http and tls on their usual ports for names, all for ranges
	protocol   Protocol     // empty: usual(port) for names, tcp for ranges
	ech        bool
	credential string
}

// on gives the protocol that the rule has on a port of a transport ("tcp" or "udp").
func (r *rule) on(port uint16, transport Protocol) (Protocol, bool) {
	proto := r.protocol
	switch {
	case r.prefix.IsValid():
		if r.ports != nil && !has(r.ports, port) {
			return "", false
		}
		if proto == "" {
			proto = TCP
		}
	case r.ports == nil:
		if u := usual(port); u == TCP || proto != "" && proto != u {
			return "", false
		}
		proto = usual(port)
	default:
		if !has(r.ports, port) {
			return "", false
		}
		if proto == "" {
			proto = usual(port)
		}
	}
	return proto, (proto == UDP) == (transport == UDP)
}

func (ps *Problems) domain(field, label string, d Domain) (rule, bool) {
	before := len(*ps)
	r := rule{text: label + " " + d.String(), ech: d.ECH == ECHAllow, credential: d.Credential, protocol: d.Protocol}
	var ok bool
	if r.name, ok = parsePattern(d.Name); !ok {
		ps.add(field, "write a plain name like api.example.com or *.example.com, without scheme or path, international names in their xn-- form", "%q is not a domain name", d.Name)
	} else if _, err := netip.ParseAddr(d.Name); err == nil {
		ps.add(field, "write it into allowed_ips", "%q is an address", d.Name)
	}
	var err error
	if r.ports, err = parsePorts(d.Ports); err != nil {
		ps.add(field, "write ports like 443 or 8000-8080,9000", "%v", err)
	}
	switch d.Protocol {
	case "", TLS, HTTP:
	case TCP, UDP:
		if d.Ports == "" {
			ps.add(field, "add the port, like "+d.Name+":5432/"+string(d.Protocol), "a rule for %s needs a port", d.Protocol)
		}
	default:
		ps.add(field, "use tls, http, tcp or udp", "%q is not a protocol", d.Protocol)
	}
	switch d.ECH {
	case "", ECHDeny, ECHAllow:
	default:
		ps.add(field, "use deny or allow", "%q is not a value of ech", d.ECH)
	}
	if d.Credential != "" && r.name.wild {
		ps.add(field, "name the hosts one by one", "a credential is added for a plain name only, %q is a wildcard", d.Name)
	}
	if d.Credential != "" && (d.Protocol == TCP || d.Protocol == UDP) {
		ps.add(field, "use tls or http", "a credential is a header of HTTP, it cannot be added to %s", d.Protocol)
	}
	return r, len(*ps) == before
}

func (ps *Problems) addresses(field, label string, g Range) (rule, bool) {
	before := len(*ps)
	r := rule{text: label + " " + g.String(), protocol: g.Protocol}
	p, err := netip.ParsePrefix(g.CIDR)
	if err != nil {
		var a netip.Addr
		if a, err = netip.ParseAddr(g.CIDR); err == nil && a.Zone() == "" {
			p = netip.PrefixFrom(a, a.BitLen())
		}
	}
	switch {
	case !p.IsValid() || p.Addr().Is4In6():
		ps.add(field, "write an address or a CIDR like 10.20.0.8/32", "%q is neither", g.CIDR)
	case p.Addr().Is6():
		ps.add(field, "write the service's IPv4 address", "boxes have IPv4 only, so that %q would never be reached", g.CIDR)
	case p != p.Masked():
		ps.add(field, "write "+p.Masked().String()+" or "+p.Addr().String()+"/32", "%q has bits below its mask", g.CIDR)
	case inside(p, forbidden):
		ps.add(field, "remove it; loopback, link-local, metadata and multicast addresses are never reached", "%q is never reached", g.CIDR)
	}
	r.prefix = p
	if r.ports, err = parsePorts(g.Ports); err != nil {
		ps.add(field, "write ports like 443 or 8000-8080,9000", "%v", err)
	}
	switch g.Protocol {
	case "", TCP:
	case UDP:
		if g.Ports == "" {
			ps.add(field, "add the port, like "+g.CIDR+":53/udp", "a rule for udp needs a port")
		}
	default:
		ps.add(field, "use tcp or udp; tls and http are judged by name, in allowed_domains", "%q is not a protocol of an address rule", g.Protocol)
	}
	return r, len(*ps) == before
}
