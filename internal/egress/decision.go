package egress

import (
	"net/netip"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// Kind is what a Decision is about.
type Kind string

const (
	// Query is a DNS question.
	Query Kind = "query"
	// Connect is a TCP connection or a UDP flow.
	Connect Kind = "connect"
	// Request is one HTTP request of a connection.
	Request Kind = "request"
	// Close is the end of an allowed connection or flow: Sent, Received and Duration are known.
	Close Kind = "close"
	// Packet is anything else that a box sent: ICMP, other protocols, forged frames.
	Packet Kind = "packet"
	// Switch is a change of the policy.
	Switch Kind = "switch"
	// Suppressed stands for Count decisions that the limit of records left out.
	Suppressed Kind = "suppressed"
)

// Verdict of a Decision.
type Verdict string

const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
)

// Decision is one record of the audit. It holds no payload and no secret.
type Decision struct {
	Time    time.Time `json:"time"`
	Box     string    `json:"box,omitempty"`
	Session string    `json:"session,omitempty"`
	Project string    `json:"project,omitempty"`
	Op      string    `json:"op,omitempty"` // that likely caused it: of what goes on for a while, when it began
	Phase   string    `json:"phase,omitempty"`
	Kind    Kind      `json:"kind"`
	// Flow ties the records of one connection together; it is unique in a box's life on one daemon.
	Flow     uint64          `json:"flow,omitempty"`
	Name     string          `json:"name,omitempty"`
	Addr     netip.Addr      `json:"addr,omitzero"`
	Port     uint16          `json:"port,omitempty"`
	Protocol policy.Protocol `json:"protocol,omitempty"` // tls, http, tcp, udp; "icmp", "dns", "ip-47", …
	Verdict  Verdict         `json:"verdict"`
	// Rule names the rule that allowed it, Reason why it was refused or why a flow ended.
	Rule   string        `json:"rule,omitempty"`
	Reason policy.Reason `json:"reason,omitempty"`
	// Detail is a short text for people: the type of a query, method and path of a request, a dial's error.
	Detail string `json:"detail,omitempty"`
	// Credential names the secret that was added, never its value.
	Credential string        `json:"credential,omitempty"`
	Sent       int64         `json:"sent,omitempty"`
	Received   int64         `json:"received,omitempty"`
	Duration   time.Duration `json:"duration_ns,omitempty"`
	// Count is how many like decisions this one stands for; 0 is one.
	Count int64 `json:"count,omitempty"`
}

// Attempt is the decision as policy.Explain wants it.
func (d Decision) Attempt() policy.Attempt {
	a := policy.Attempt{Name: d.Name, Addr: d.Addr, Port: d.Port, Protocol: d.Protocol, Reason: d.Reason, Count: int(d.Count)}
	if d.Kind == Query {
		a.Port, a.Protocol = 0, ""
	}
	return a
}

// Sink takes decisions. Record is called from the paths of packets: it must not block, may be
// called concurrently and keeps no reference.
type Sink interface {
	Record(d Decision)
}

// SinkFunc is a Sink of one function.
type SinkFunc func(Decision)

// Record calls f.
func (f SinkFunc) Record(d Decision) { f(d) }
