package policy

import "net/netip"

// Reason is the stable cause of a verdict. Records and messages carry it; it is never renamed.
type Reason string

// Why something is refused, or why a flow ended.
const (
	NameNotAllowed    Reason = "name-not-allowed"
	AddressNotAllowed Reason = "address-not-allowed"
	PortNotAllowed    Reason = "port-not-allowed"
	UDPNotAllowed     Reason = "udp-not-allowed"
	AddressForbidden  Reason = "address-forbidden" // loopback, link-local, metadata, node, multicast
	AddressPrivate    Reason = "address-private"   // a private address outside allowed_ips
	PolicyDenies      Reason = "policy-denies"     // egress_policy: deny
	NameUnpinned      Reason = "name-not-pinned"   // the TLS or HTTP name is allowed, but not at this address
	ServerNameMissing Reason = "server-name-missing"
	ServerNameRefused Reason = "server-name-refused"
	NotTLS            Reason = "not-tls"
	HelloEncrypted    Reason = "hello-encrypted" // encrypted ClientHello without ech: allow
	NotHTTP           Reason = "not-http"
	HostRefused       Reason = "host-refused"
	MethodRefused     Reason = "method-refused" // CONNECT
	QueryMalformed    Reason = "query-malformed"
	ResolverFailed    Reason = "resolver-failed"
	NoSuchName        Reason = "no-such-name"
	DialFailed        Reason = "dial-failed"
	PingRefused       Reason = "ping-refused"
	ProtocolRefused   Reason = "protocol-refused" // not TCP, UDP or ARP
	SourceForged      Reason = "source-forged"
	LimitConnects     Reason = "limit-connects-per-second"
	LimitConnections  Reason = "limit-connections"
	LimitDNS          Reason = "limit-dns-per-second"
	LimitNames        Reason = "limit-dns-names-per-minute"
	LimitBytes        Reason = "limit-bytes"
	LimitRecords      Reason = "limit-audit-per-second"
	PolicyChanged     Reason = "policy-changed"
	ConnectionReset   Reason = "connection-reset" // how an allowed flow ended
	BoxClosed         Reason = "box-closed"
	CredentialMissing Reason = "credential-missing"
	UpstreamUntrusted Reason = "upstream-untrusted"
)

// Match is what the rules say of one connection. When OK, Rule names the rule and Protocol says
// how the bytes are judged further; else Reason says why not.
type Match struct {
	OK         bool
	Rule       string
	Protocol   Protocol
	ECH        bool
	Credential string
	Reason     Reason
}

// openRule is how records name the absence of a list.
const openRule = "egress_policy open"

// Name judges a name alone: may the resolver answer it? wild tells that only a wildcard or open
// allows it, so that its labels are the box's own choice.
func (p *Policy) Name(name string) (m Match, wild bool) {
	if p.mode == Deny {
		return Match{Reason: PolicyDenies}, false
	}
	name, ok := Fold(name)
	if !ok {
		return Match{Reason: NameNotAllowed}, false
	}
	if is := p.exact[name]; len(is) > 0 {
		return Match{OK: true, Rule: p.rules[is[0]].text}, false
	}
	for _, i := range p.wild {
		if p.rules[i].name.match(name) {
			return Match{OK: true, Rule: p.rules[i].text}, true
		}
	}
	if p.mode == Open && p.bound.name(pattern{name: name}) {
		return Match{OK: true, Rule: openRule}, true
	}
	return Match{Reason: NameNotAllowed}, false
}

// Host judges a connection to a name; transport is TCP or UDP. The first rule of a name that has the port
// wins, plain names before wildcards.
func (p *Policy) Host(name string, port uint16, transport Protocol) Match {
	m, _ := p.Name(name)
	if !m.OK {
		return m
	}
	name, _ = Fold(name)
	for _, i := range p.exact[name] {
		if proto, ok := p.rules[i].on(port, transport); ok {
			return p.rules[i].match(proto)
		}
	}
	for _, i := range p.wild {
		if !p.rules[i].name.match(name) {
			continue
		}
		if proto, ok := p.rules[i].on(port, transport); ok {
			return p.rules[i].match(proto)
		}
	}
	if p.mode == Open && transport != UDP { // the name is inside the bound, else it would not be OK
		return Match{OK: true, Rule: openRule, Protocol: TCP}
	}
	return p.otherwise(PortNotAllowed, transport)
}

// Addr judges a connection to an address by the range rules alone.
func (p *Policy) Addr(a netip.Addr, port uint16, transport Protocol) Match {
	a = a.Unmap()
	if p.mode == Deny {
		return Match{Reason: PolicyDenies}
	}
	if reason := p.Address(a); reason != "" {
		return Match{Reason: reason}
	}
	reason := AddressNotAllowed
	for _, i := range p.ranges {
		if !p.rules[i].prefix.Contains(a) {
			continue
		}
		reason = PortNotAllowed
		if proto, ok := p.rules[i].on(port, transport); ok {
			return p.rules[i].match(proto)
		}
	}
	return p.otherwise(reason, transport)
}

// Address tells why an address may never be dialled under this policy, by name or by number; empty: it may.
func (p *Policy) Address(a netip.Addr) Reason {
	a = a.Unmap()
	switch ClassOf(a) {
	case Forbidden:
		return AddressForbidden
	case Private:
		if !within(a, p.private) {
			return AddressPrivate
		}
	}
	return ""
}

// otherwise is the verdict where no rule matched.
func (p *Policy) otherwise(r Reason, transport Protocol) Match {
	switch {
	case transport == UDP:
		return Match{Reason: UDPNotAllowed}
	case p.mode == Open && (p.bound == nil || p.bound.any):
		return Match{OK: true, Rule: openRule, Protocol: TCP}
	}
	return Match{Reason: r}
}

func (r *rule) match(proto Protocol) Match {
	return Match{OK: true, Rule: r.text, Protocol: proto, ECH: r.ech, Credential: r.credential}
}
