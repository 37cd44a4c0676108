// Package egress is a box's way out: the contract that every runtime uses, and the data that its
// parts share. Nothing leaves a box but what its policy.Policy allows, by any path.
//
// A box has a network namespace with loopback alone. Where its policy lets something out, Attach puts
// a TAP device into the namespace whose other end is a TCP/IP stack in the node's daemon: one choke point
// for TCP, UDP, ICMP, raw frames, IPv6 and DNS, without a bridge, NAT, firewall rules or an address
// plan. What is refused is answered at once by an error that the program sees. Where no TAP can be
// had, an HTTP proxy on the box's own loopback serves the same policy to programs that use it.
//
// The node's life of a box:
//
//	policy.CompilePhases ── Preflight ── Attach ── Switch (any number of times) ── Close
//	                                       ▲  after a restart of the daemon, with Resume
//
// The parts, each in its own package below: policy (pure) says what is allowed; gate is the judge of one
// box, with its pins (pin) and limits (limit), the node's resolver (resolve) and records (audit); link is the
// TAP and its endpoint, netstack the stack over it, proxy the explicit proxy; web judges TLS (hello) and
// HTTP, relay moves bytes, dns is the wire of the box's resolver. bundle and credential read what the
// operator and the template say, boxenv is what programs in the box read; uplink puts all together and is
// what implements Network. egresstest is a small internet for tests.
package egress
