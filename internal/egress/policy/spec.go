package policy

// Mode is the value of egress_policy.
type Mode string

const (
	// Deny lets nothing out: the box has loopback only.
	Deny Mode = "deny"
	// Whitelist lets out what the lists and bundles name.
	Whitelist Mode = "whitelist"
	// Open lets TCP out to every public address; UDP stays closed but for what the lists name.
	Open Mode = "open"
)

// Protocol is what a rule expects on a port.
type Protocol string

const (
	// TLS: the server name of every hello must be the rule's.
	TLS Protocol = "tls"
	// HTTP: the Host of every request must be the rule's.
	HTTP Protocol = "http"
	// TCP: any bytes, to an address that the name resolved to, or inside the range.
	TCP Protocol = "tcp"
	// UDP: datagrams, to an address that the name resolved to, or inside the range.
	UDP Protocol = "udp"
)

// Values of Domain.ECH.
const (
	ECHDeny  = "deny"
	ECHAllow = "allow"
)

// Domain is one entry of allowed_domains. As text it is NAME[:PORTS][/PROTOCOL]; without ports it
// means 80 (http) and 443 (tls), and a port without protocol means http on 80, tls on 443, tcp
// elsewhere.
type Domain struct {
	// Name is a host name, or *.NAME for every name below NAME (not NAME itself).
	Name string
	// Ports are numbers and ranges: "443", "8000-8080,9000".
	Ports string
	// Protocol is tls, http, tcp or udp.
	Protocol Protocol
	// ECH says whether a hello whose inner name is encrypted may pass on its outer name; deny
	// when empty.
	ECH string
	// Credential names a secret whose header is added to requests to this name outside the box.
	Credential string
}

// Range is one entry of allowed_ips. As text it is ADDRESS[/BITS][:PORTS][/PROTOCOL], an IPv6 range
// with ports in brackets: [fd00::/8]:443. Without ports it means all, without protocol tcp.
type Range struct {
	CIDR     string
	Ports    string
	Protocol Protocol
}

// Spec is a policy as it is written. The zero value denies everything.
type Spec struct {
	Mode    Mode            `json:"egress_policy,omitempty"`
	Domains []Domain        `json:"allowed_domains,omitempty"`
	IPs     []Range         `json:"allowed_ips,omitempty"`
	Bundles map[string]bool `json:"bundles,omitempty"`
	Limits  Limits          `json:"limits,omitzero"`
}

// Limits bound what one box may cost. Zero is the default of Defaults; Bytes and Bandwidth are
// unlimited when zero.
type Limits struct {
	// Bandwidth in bytes a second, both directions together.
	Bandwidth int64 `json:"bandwidth,omitempty"`
	// Bytes in both directions together, until the policy is switched.
	Bytes int64 `json:"bytes,omitempty"`
	// Connections open at once, UDP flows included.
	Connections int `json:"connections,omitempty"`
	// ConnectsPerSecond bounds new connections; twice as many may come at once.
	ConnectsPerSecond int `json:"connects_per_second,omitempty"`
	// DNSPerSecond bounds queries; twice as many may come at once.
	DNSPerSecond int `json:"dns_per_second,omitempty"`
	// DNSNamesPerMinute bounds the distinct names below wildcards that reach the resolver: the width of
	// the tunnel that a wildcard is.
	DNSNamesPerMinute int `json:"dns_names_per_minute,omitempty"`
	// AuditPerSecond bounds the records; what is over is counted, not lost silently.
	AuditPerSecond int `json:"audit_per_second,omitempty"`
	// RefusalsPerSecond bounds answered refusals; beyond, the box's packets wait in its own queue.
	RefusalsPerSecond int `json:"refusals_per_second,omitempty"`
}

// Defaults are the limits of a policy that says none.
func Defaults() Limits {
	return Limits{
		Connections: 4096, ConnectsPerSecond: 1000, DNSPerSecond: 200, DNSNamesPerMinute: 300,
		AuditPerSecond: 200, RefusalsPerSecond: 2000,
	}
}

// Bundle is a named group of rules, made from an operator's file or from a template's own tool
// configuration; none is compiled in.
type Bundle struct {
	Domains []Domain `json:"allowed_domains,omitempty"`
	IPs     []Range  `json:"allowed_ips,omitempty"`
	// Source says where the rules come from: "operator", "template: /etc/pip.conf".
	Source string `json:"source,omitempty"`
}

// Bound is what a project's sessions may ask at most. A nil *Bound bounds nothing.
type Bound struct {
	// Open allows egress_policy: open.
	Open bool `json:"open,omitempty"`
	// Domains are names and *.NAME patterns, "*" for any name; empty: none.
	Domains []string `json:"domains,omitempty"`
	// IPs are CIDRs; rules' ranges must lie inside one, and so must private answers.
	IPs []string `json:"ips,omitempty"`
	// Limits are maxima; zero bounds nothing.
	Limits Limits `json:"limits,omitzero"`
}
