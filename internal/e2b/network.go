package e2b

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
)

// network is what a create or an update says of the network of a sandbox.
type network struct {
	internet          *bool // allow_internet_access
	allowOut, denyOut []string
	public            bool // its ports need no token
}

// readNetwork takes the network's fields of a create.
func readNetwork(o *object) (n network, err error) {
	if n.internet, err = o.bool("allow_internet_access"); err != nil {
		return n, err
	}
	sub, err := o.object("network")
	if err != nil || sub == nil {
		return n, err
	}
	public, err := sub.bool("allowPublicTraffic")
	if err != nil {
		return n, err
	}
	n.public = public != nil && *public
	if err := sub.refuse("maskRequestHost", "leave it out", "the Host header of requests to a sandbox's ports is not rewritten"); err != nil {
		return n, err
	}
	if err := sub.refuse("httpsPorts", "serve plain HTTP in the sandbox", "ports are reached by plain HTTP alone"); err != nil {
		return n, err
	}
	return n, n.readEgress(sub)
}

// readUpdate takes the body of an update, which replaces everything: what is omitted is cleared.
func readUpdate(o *object) (n network, err error) {
	if n.internet, err = o.bool("allow_internet_access"); err != nil {
		return n, err
	}
	return n, n.readEgress(o)
}

func (n *network) readEgress(o *object) (err error) {
	if n.allowOut, err = o.texts("allowOut"); err != nil {
		return err
	}
	if n.denyOut, err = o.texts("denyOut"); err != nil {
		return err
	}
	if err := o.refuse("egressProxy", "leave it out", "what a sandbox sends out goes through no proxy here"); err != nil {
		return err
	}
	if err := o.refuse("dnsServers", "leave it out", "a sandbox cannot choose who resolves its names"); err != nil {
		return err
	}
	if err := o.refuse("rules", "leave it out", "requests that a sandbox sends out are not rewritten here"); err != nil {
		return err
	}
	return o.end()
}

// policy gives the egress policy that n asks for, upon what the operator gives everybody.
// Whether a node can enforce it is for spec.Check.
func (n *network) policy(standard spec.Network) (spec.Network, error) {
	for _, d := range n.denyOut {
		if !isRange(d) {
			return spec.Network{}, errdefs.Userf(errdefs.InvalidArgument, "field network.denyOut", "write addresses or CIDR blocks", "%q is neither", Clip(d))
		}
	}
	// What stands in allowOut is let out whatever else is denied.
	var allowed spec.Network
	for _, a := range n.allowOut {
		if isRange(a) {
			allowed.AllowedIPs = append(allowed.AllowedIPs, a)
		} else {
			allowed.AllowedDomains = append(allowed.AllowedDomains, a)
		}
	}
	denyAll := n.internet != nil && !*n.internet || slices.Contains(n.denyOut, "0.0.0.0/0")
	switch {
	case len(n.allowOut) > 0 && (denyAll || standard.EgressPolicy == spec.EgressDeny):
		allowed.EgressPolicy = spec.EgressWhitelist
		// E2B looks at no name before it is used.
		allowed.Limits, allowed.Preflight = standard.Limits, cmp.Or(standard.Preflight, spec.PreflightOff)
		return allowed, nil
	case denyAll:
		return spec.Network{EgressPolicy: spec.EgressDeny}, nil
	case standard.EgressPolicy != spec.EgressDeny && len(n.denyOut) > 0:
		return spec.Network{}, errdefs.Userf(errdefs.Unsupported, "field network.denyOut", `deny "0.0.0.0/0" and name what is allowed in allowOut`, "single destinations cannot be denied here")
	case standard.EgressPolicy == spec.EgressWhitelist:
		standard.AllowedDomains = slices.Concat(standard.AllowedDomains, allowed.AllowedDomains)
		standard.AllowedIPs = slices.Concat(standard.AllowedIPs, allowed.AllowedIPs)
	}
	return standard, nil // without a way out, whatever is denied is denied
}

func isRange(s string) bool {
	if _, err := netip.ParsePrefix(s); err == nil {
		return true
	}
	_, err := netip.ParseAddr(s)
	return err == nil
}
