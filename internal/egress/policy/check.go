package policy

import (
	"fmt"
	"net/netip"
)

// Result is what would be decided about a host and port, in words.
type Result struct {
	Host     string   `json:"host"`
	Port     uint16   `json:"port"`
	Protocol Protocol `json:"protocol,omitempty"` // how an allowed connection is judged further
	Allowed  bool     `json:"allowed"`
	Rule     string   `json:"rule,omitempty"`
	Reason   Reason   `json:"reason,omitempty"`
	// Message is one sentence; Remedy says what to change when it is refused.
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
	Phase   string `json:"phase,omitempty"`
}

// Check says what would be decided about host (a name or an address) and port; transport is TCP or
// UDP, empty is TCP. For a name the address that it resolves to matters too: a private or
// forbidden one is dropped then.
func (p *Policy) Check(host string, port uint16, transport Protocol) Result {
	r := Result{Host: host, Port: port, Phase: p.Phase()}
	if transport != UDP {
		transport = TCP
	}
	var m Match
	if a, err := netip.ParseAddr(host); err == nil {
		m = p.Addr(a, port, transport)
	} else if folded, ok := Fold(host); ok {
		r.Host = folded
		m = p.Host(folded, port, transport)
	} else {
		m = Match{Reason: NameNotAllowed}
	}
	r.Allowed, r.Rule, r.Protocol, r.Reason = m.OK, m.Rule, m.Protocol, m.Reason
	if m.OK {
		r.Message = fmt.Sprintf("%s is allowed as %s by %s", target(r.Host, port), m.Protocol, m.Rule)
		return r
	}
	r.Message = fmt.Sprintf("%s is refused: %s", target(r.Host, port), m.Reason.Text())
	if s := Explain([]Attempt{{Name: nameOf(r.Host), Addr: addrOf(r.Host), Port: port, Protocol: transport, Reason: m.Reason}}); len(s) > 0 {
		r.Remedy = s[0].remedy()
	}
	return r
}

func target(host string, port uint16) string {
	if a, err := netip.ParseAddr(host); err == nil {
		return netip.AddrPortFrom(a, port).String()
	}
	return fmt.Sprintf("%s:%d", host, port)
}

func addrOf(host string) netip.Addr {
	a, _ := netip.ParseAddr(host)
	return a
}

func nameOf(host string) string {
	if addrOf(host).IsValid() {
		return ""
	}
	return host
}

var texts = map[Reason]string{
	NameNotAllowed:    "no rule names it",
	AddressNotAllowed: "no rule names the address, and no allowed name resolved to it for this box",
	PortNotAllowed:    "the rules that name it do not have this port",
	UDPNotAllowed:     "no rule names it for udp",
	AddressForbidden:  "loopback, link-local, metadata, multicast and the node's own addresses are never reached",
	AddressPrivate:    "a private address is reached only inside a private range of allowed_ips",
	PolicyDenies:      "egress_policy is deny",
	NameUnpinned:      "the name did not resolve to this address for this box",
	ServerNameMissing: "the TLS hello names no server",
	ServerNameRefused: "no rule names the server of the TLS hello",
	NotTLS:            "the bytes are not a TLS hello, and the rule says tls",
	HelloEncrypted:    "the TLS hello is encrypted (ECH), and the rule does not say ech: allow",
	NotHTTP:           "the bytes are not an HTTP/1 request, and the rule says http",
	HostRefused:       "no rule names the Host of the request",
	MethodRefused:     "CONNECT is not a request that the rule lets out",
	QueryMalformed:    "the DNS query is malformed",
	ResolverFailed:    "the upstream resolver did not answer",
	NoSuchName:        "the name does not exist",
	DialFailed:        "the destination did not accept the connection",
	PingRefused:       "ICMP is answered by the node and goes nowhere",
	ProtocolRefused:   "only TCP, UDP where named, and DNS leave a box",
	SourceForged:      "the packet's source is not the box's address",
	LimitConnects:     "the box opens more connections a second than its limit",
	LimitConnections:  "the box has as many connections open as its limit",
	LimitDNS:          "the box asks more DNS queries a second than its limit",
	LimitNames:        "the box asks more distinct names below wildcards a minute than its limit",
	LimitBytes:        "the box moved as many bytes as its limit",
	LimitRecords:      "more happened a second than the limit of records",
	PolicyChanged:     "the policy was switched, and the new one does not allow it",
	ConnectionReset:   "an end broke the connection off",
	BoxClosed:         "the box or the daemon ended",
	CredentialMissing: "the credential that the rule names is not known to the project",
	UpstreamUntrusted: "the server's certificate is not trusted by the node",
}

// Text is the reason as a clause.
func (r Reason) Text() string {
	if t, ok := texts[r]; ok {
		return t
	}
	return string(r)
}
