package egress

import (
	"crypto/x509"
	"log/slog"
	"net/netip"
	"time"
)

// Config is what the Network of a node needs; uplink.New takes it.
type Config struct {
	// Resolvers are the upstream name servers, tried in turn; empty: those of the node's resolv.conf.
	// They may have any address: they are the operator's, and boxes cannot name them.
	Resolvers []netip.AddrPort
	// Never are addresses that no box reaches, on top of those that nobody does and of the
	// node's own, which are read from its interfaces.
	Never []netip.Prefix
	// Sink takes every decision. Nil: none is kept.
	Sink Sink
	// Credentials may be nil: a rule that names one is refused then.
	Credentials Credentials
	// Bandwidth in bytes a second of all boxes together; zero: unlimited. With or without, boxes
	// that move bytes at the same time get equal shares.
	Bandwidth int64
	// Roots are the authorities that are trusted where TLS is opened to add a credential; nil: the node's.
	Roots *x509.CertPool
	// DialTimeout bounds the connect to a destination; zero: 10 s.
	DialTimeout time.Duration
	// Log takes what concerns the node; nil: slog.Default.
	Log *slog.Logger
}
