// Package uplink puts egress together: it is the Network of a node.
package uplink

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/netstack"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/egress/proxy"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Network is the node's; make it with New.
type Network struct {
	node *gate.Node

	mu    sync.Mutex
	boxes map[*box]struct{} // nil: closed
	gone  egress.Stats      // of boxes that were closed
}

var _ egress.Network = (*Network)(nil)

// New makes the network of a node.
func New(cfg egress.Config) *Network {
	return &Network{node: gate.NewNode(cfg), boxes: map[*box]struct{}{}}
}

// Attach implements egress.Network.
func (n *Network) Attach(ctx context.Context, a egress.Attachment) (egress.Link, error) {
	if a.Proxied {
		return n.attachProxy(ctx, a)
	}
	b := &box{net: n, gate: gate.New(n.node, &a), netns: a.Netns, resume: a.Resume}
	// Without a daemon the device has no carrier, so that under a closed policy it may stay as it is.
	if !a.Policy.Closed() {
		if err := b.device(); err != nil {
			b.gate.Close(policy.PolicyChanged)
			return nil, err
		}
	}
	return n.add(b)
}

// Proxy implements egress.Network.
func (n *Network) Proxy(_ context.Context, ln net.Listener, a egress.Attachment) (egress.Link, error) {
	a.Trusts = false
	b := &box{net: n, gate: gate.New(n.node, &a)}
	b.proxy = proxy.Serve(ln, b.gate)
	return n.add(b)
}

var errClosed = errors.New("the network is closed")

func (n *Network) add(b *box) (egress.Link, error) {
	n.mu.Lock()
	open := n.boxes != nil
	if open {
		n.boxes[b] = struct{}{}
	}
	n.mu.Unlock()
	if !open {
		_ = b.Close(false)
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "egress", "attach: %w", errClosed)
	}
	return b, nil
}

// Stats implements egress.Network.
func (n *Network) Stats() egress.Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	sum := n.gone
	for b := range n.boxes {
		sum = add(sum, b.gate.Stats())
	}
	return sum
}

func add(a, b egress.Stats) egress.Stats {
	return egress.Stats{
		Boxes: a.Boxes + b.Boxes, Open: a.Open + b.Open, Pins: a.Pins + b.Pins, Allowed: a.Allowed + b.Allowed, Refused: a.Refused + b.Refused,
		Limited: a.Limited + b.Limited, Queries: a.Queries + b.Queries, Sent: a.Sent + b.Sent, Received: a.Received + b.Received,
		Records: a.Records + b.Records, Suppressed: a.Suppressed + b.Suppressed,
	}
}

// Close implements egress.Network.
func (n *Network) Close() error {
	n.mu.Lock()
	boxes := n.boxes
	n.boxes = nil
	n.mu.Unlock()
	var wg sync.WaitGroup
	for b := range boxes {
		wg.Go(func() { _ = b.Close(false) })
	}
	wg.Wait()
	return nil
}

func (n *Network) forget(b *box) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.boxes[b]; !ok {
		return
	}
	delete(n.boxes, b)
	s := b.gate.Stats()
	s.Boxes, s.Open, s.Pins = 0, 0, 0
	n.gone = add(n.gone, s)
}

// device makes the box's device, or takes over the one that is there.
func (b *box) device() error {
	ns, err := b.netns()
	if err != nil {
		return errdefs.Infraf(errdefs.ScopeBox, errdefs.Internal, "box "+b.gate.ID.Box, "open its network namespace: %w", err)
	}
	defer ns.Close()
	s, _, err := netstack.New(ns, b.gate, b.resume)
	if err != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+b.gate.ID.Box, "attach its network: %w", err)
	}
	b.stack = s
	return nil
}
