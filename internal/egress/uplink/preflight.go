package uplink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/egress/resolve"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

const (
	preflightWidth = 16
	reachTimeout   = 3 * time.Second
)

// Preflight implements egress.Network.
func (n *Network) Preflight(ctx context.Context, p *policy.Policy, reach bool) ([]egress.Preflight, error) {
	names := p.Names()
	out := make([]egress.Preflight, len(names))
	slots := make(chan struct{}, preflightWidth)
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i] = n.preflight(ctx, p, name, reach)
		})
	}
	wg.Wait()
	var bad []string
	for _, r := range out {
		if r.Reason != "" {
			bad = append(bad, r.Name+": "+r.Message)
		}
	}
	if len(bad) == 0 {
		return out, nil
	}
	return out, errdefs.Userf(errdefs.Unavailable, "egress policy", "correct the names in allowed_domains, or wait for the services", "the preflight failed for %s", strings.Join(bad, "; "))
}

func (n *Network) preflight(ctx context.Context, p *policy.Policy, name string, reach bool) egress.Preflight {
	r := egress.Preflight{Name: name}
	ans, err := n.node.Resolver.Lookup(ctx, name)
	if err != nil {
		r.Reason, r.Message = policy.ResolverFailed, err.Error()
		if errors.Is(err, resolve.ErrNoName) {
			r.Reason = policy.NoSuchName
		}
		return r
	}
	r.TTL = ans.TTL
	var why policy.Reason
	for _, a := range ans.Addrs {
		no := p.Address(a)
		if no == "" && n.node.Never(a) {
			no = policy.AddressForbidden
		}
		if no == "" {
			r.Addrs = append(r.Addrs, a)
		} else {
			why = no
		}
	}
	if len(r.Addrs) == 0 {
		r.Reason, r.Message = why, fmt.Sprintf("it resolves to %v: %s", ans.Addrs, why.Text())
		return r
	}
	if reach {
		n.reach(ctx, p, &r)
	}
	return r
}

// reach connects to every port that the policy names for the name.
func (n *Network) reach(ctx context.Context, p *policy.Policy, r *egress.Preflight) {
	for _, port := range p.Endpoints(r.Name) {
		var err error
		for _, a := range r.Addrs {
			if err = touch(ctx, netip.AddrPortFrom(a, port)); err == nil {
				r.Reached = append(r.Reached, port)
				break
			}
		}
		if err != nil {
			r.Reason, r.Message = policy.DialFailed, fmt.Sprintf("port %d: %v", port, err)
		}
	}
}

func touch(ctx context.Context, to netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	return conn.Close()
}
