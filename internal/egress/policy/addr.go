package policy

import "net/netip"

// Class says what an address is, whatever a policy says.
type Class int

const (
	// Public addresses are judged by the rules.
	Public Class = iota
	// Private addresses pass only inside a private range of allowed_ips.
	Private
	// Forbidden addresses are never reached: loopback, link-local, metadata, multicast, reserved,
	// and IPv6 forms that carry an IPv4 address past the rules.
	Forbidden
)

// Explainer is the address at which programs of a box are told why a name is refused: in the box that trusts its
// project's authority a refused name resolves to it. It is the dummy address of RFC 7600, of a class that no policy
// lets anybody reach, so that what is sent there ends at the gate whatever else is wrong.
var Explainer = netip.MustParseAddr("192.0.0.8")

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

var (
	forbidden = prefixes(
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"100.100.100.200/32", "168.63.129.16/32", // metadata services outside link-local
		"::/96", "fe80::/10", "ff00::/8", "fd00:ec2::254/128",
		"64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16", "::ffff:0:0:0/96", // carry IPv4 inside
	)
	private = prefixes(
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15",
		"fc00::/7", "fec0::/10",
	)
)

// ClassOf classifies an address; IPv4 in IPv6 is judged as IPv4, a zone makes it Forbidden.
func ClassOf(a netip.Addr) Class {
	if !a.IsValid() || a.Zone() != "" {
		return Forbidden
	}
	a = a.Unmap()
	switch {
	case within(a, forbidden):
		return Forbidden
	case within(a, private):
		return Private
	}
	return Public
}

func within(a netip.Addr, list []netip.Prefix) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// inside tells whether the whole of p lies in one of list.
func inside(p netip.Prefix, list []netip.Prefix) bool {
	for _, q := range list {
		if q.Bits() <= p.Bits() && q.Contains(p.Addr()) {
			return true
		}
	}
	return false
}
