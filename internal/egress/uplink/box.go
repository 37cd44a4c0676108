package uplink

import (
	"context"
	"os"
	"sync"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/netstack"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/egress/proxy"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// box is one box's link: a gate, and a device or a proxy through which the box comes to it.
type box struct {
	net    *Network
	gate   *gate.Gate
	netns  func() (*os.File, error)
	resume bool
	proxy  *proxy.Server

	mu     sync.Mutex // of switching and closing
	stack  *netstack.Stack
	closed bool
}

var _ egress.Link = (*box)(nil)

// Switch implements egress.Link. The device is made before the policy is in force, so that a failure changes nothing.
func (b *box) Switch(_ context.Context, p *policy.Policy) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errdefs.Policyf(errdefs.BoxGone, "box "+b.gate.ID.Box, "create another session", "its network was closed")
	}
	if b.stack == nil && b.proxy == nil && !p.Closed() {
		if err := b.device(); err != nil {
			return err
		}
	}
	b.gate.Switch(p)
	return nil
}

// Policy implements egress.Link.
func (b *box) Policy() *policy.Policy { return b.gate.Policy() }

// Check implements egress.Link.
func (b *box) Check(host string, port uint16, transport policy.Protocol) policy.Result {
	r := b.gate.Check(host, port, transport)
	if b.proxy != nil && transport == policy.UDP {
		r.Allowed, r.Rule, r.Reason = false, "", policy.UDPNotAllowed
		r.Message, r.Remedy = "a box that goes by a proxy has no UDP", "use TCP, or a server that gives boxes a device"
	}
	return r
}

// Stats implements egress.Link.
func (b *box) Stats() egress.Stats { return b.gate.Stats() }

// Close implements egress.Link.
func (b *box) Close(remove bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.gate.Close(policy.BoxClosed)
	var err error
	if b.stack != nil {
		err = b.stack.Close(remove)
	}
	if b.proxy != nil {
		err = b.proxy.Close()
	}
	b.net.forget(b)
	return err
}
