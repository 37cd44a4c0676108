// Package link is the wire between a box and its stack: a persistent TAP device in the box's network
// namespace, its addresses and route, and an endpoint of gVisor's netstack over the descriptor, with
// checksum and segmentation offload. The box's namespace is the identity: no address that the box
// chooses matters.
//
// The device outlives the daemon (then it has no carrier, and connections fail at once) and is taken over
// by the next one with Open. It dies with its namespace.
package link
