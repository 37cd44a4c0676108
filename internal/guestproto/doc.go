// Package guestproto is the wire between a node and dsec-guest: frames over one
// byte stream, limits on every length, credit-based flow control per stream.
// It imports the standard library only: the guest links it.
package guestproto

// Hello is the first message of each side of a control connection. Unknown
// fields are skipped; a daemon serves guests of the release before.
type Hello struct {
	Major, Minor uint32
	Build        string
	Features     []string
	BootID       string // random, of this guest process: tells a new box from an old one
}
