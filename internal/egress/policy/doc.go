// Package policy is what a box may reach: plain data as an operator writes it (Spec), and its
// compiled, immutable form (Policy) that answers questions without I/O.
//
// The words are the seeds': egress_policy is deny, whitelist or open; allowed_domains and
// allowed_ips name what a whitelist lets out. Whatever a policy says, loopback, link-local,
// metadata and multicast addresses are never reached, private ones only inside allowed_ips.
//
// A policy is judged in three places that must agree: by name when the box asks the resolver, by
// address and port when it connects, and by name again when a TLS or HTTP client says who it
// wants. Check is the same judgement without a box.
package policy
