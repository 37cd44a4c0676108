package gate

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/limit"
	"github.com/dsec-platform/dsec/internal/egress/resolve"
)

// Node is what the gates of a node share.
type Node struct {
	Resolver    *resolve.Resolver
	Sink        egress.Sink
	Credentials egress.Credentials
	Roots       *x509.CertPool
	Log         *slog.Logger

	turns     *limit.Turns
	pages     *limit.Bucket
	bandwidth *limit.Bucket
	never     []netip.Prefix
	timeout   time.Duration

	mu      sync.Mutex
	own     map[netip.Addr]bool
	ownRead time.Time
}

// NewNode makes what a node's gates share.
func NewNode(cfg egress.Config) *Node {
	n := &Node{
		Resolver: resolve.New(cfg.Resolvers), Sink: cfg.Sink, Credentials: cfg.Credentials, Roots: cfg.Roots, Log: cfg.Log,
		// As many chunks at once as there are processors: more would only wait for one, in no order.
		turns:     limit.NewTurns(runtime.GOMAXPROCS(0)),
		bandwidth: limit.NewBucket(float64(cfg.Bandwidth), float64(cfg.Bandwidth)/4),
		pages:     limit.NewBucket(nodePagesPerSecond, 2*nodePagesPerSecond),
		never:     cfg.Never, timeout: cfg.DialTimeout,
	}
	if n.Log == nil {
		n.Log = slog.Default()
	}
	if n.timeout <= 0 {
		n.timeout = 10 * time.Second
	}
	return n
}

// ownFor is how long the list of the node's own addresses is believed.
const ownFor = 5 * time.Second

// Never tells whether no box of this node may reach an address: the operator said so, or it is the node's own.
func (n *Node) Never(a netip.Addr) bool {
	for _, p := range n.never {
		if p.Contains(a) {
			return true
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.ownRead) > ownFor {
		own := map[netip.Addr]bool{}
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			n.Log.Error("the node's own addresses cannot be read", "err", err)
		}
		for _, ia := range addrs {
			if ipn, ok := ia.(*net.IPNet); ok {
				if a, ok := netip.AddrFromSlice(ipn.IP); ok {
					own[a.Unmap()] = true
				}
			}
		}
		if err == nil {
			n.own, n.ownRead = own, time.Now()
		}
	}
	return n.own == nil || n.own[a]
}

var errOwn = errors.New("the address is the node's own")

// dial connects to an address that was judged. It is the only place from which a box's bytes leave.
func (n *Node) dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	conn, err := (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext(ctx, network, to.String())
	if err != nil {
		return nil, err
	}
	// An address that came to the node since its list was read ends here.
	if local, err := netip.ParseAddrPort(conn.LocalAddr().String()); err != nil || local.Addr().Unmap() == to.Addr() {
		_ = conn.Close()
		return nil, errOwn
	}
	return conn, nil
}

// DialText shortens a dial's error: the address stands in the record already.
func DialText(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}
