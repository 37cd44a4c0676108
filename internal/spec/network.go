package spec

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// Values of network.preflight.
const (
	PreflightResolve = "resolve"
	PreflightReach   = "reach"
	PreflightOff     = "off"
)

var preflights = []string{PreflightResolve, PreflightReach, PreflightOff}

// Base is the policy that the fields outside of the phases say.
func (n *Network) Base() NetworkPhase {
	return NetworkPhase{n.EgressPolicy, n.AllowedDomains, n.AllowedIPs, n.Bundles, n.Limits}
}

// Opens tells whether any phase could let something out.
func (n *Network) Opens() bool {
	open := func(p NetworkPhase) bool { return p.EgressPolicy != "" && p.EgressPolicy != EgressDeny }
	return open(n.Base()) || slices.ContainsFunc(slices.Collect(maps.Values(n.Phases)), open)
}

// Policy gives the phase in the terms of package policy. The errors are those of the forms of single entries.
func (p NetworkPhase) Policy() (policy.Spec, error) {
	s := policy.Spec{Mode: policy.Mode(p.EgressPolicy), Bundles: p.Bundles, Limits: p.Limits.Policy()}
	var ps policy.Problems
	for i, text := range p.AllowedDomains {
		d, err := policy.ParseDomain(text)
		if err != nil {
			ps = append(ps, policy.Problem{Field: fmt.Sprintf("allowed_domains[%d]", i), Message: err.Error(), Remedy: "write a plain name like api.example.com, without scheme or path"})
		}
		s.Domains = append(s.Domains, d)
	}
	for i, text := range p.AllowedIPs {
		r, err := policy.ParseRange(text)
		if err != nil {
			ps = append(ps, policy.Problem{Field: fmt.Sprintf("allowed_ips[%d]", i), Message: err.Error(), Remedy: "write an address or a CIDR like 10.20.0.8/32"})
		}
		s.IPs = append(s.IPs, r)
	}
	if len(ps) > 0 {
		return s, ps
	}
	return s, nil
}

// Policy gives the limits in the terms of package policy.
func (l NetworkLimits) Policy() policy.Limits {
	return policy.Limits{
		Bandwidth: int64(l.Bandwidth), Bytes: int64(l.Bytes), Connections: l.Connections, ConnectsPerSecond: l.ConnectsPerSecond,
		DNSPerSecond: l.DNSPerSecond, DNSNamesPerMinute: l.DNSNamesPerMinute, AuditPerSecond: l.AuditPerSecond, RefusalsPerSecond: l.RefusalsPerSecond,
	}
}

// Compile makes the policies of n. o.Phase is not used.
func (n *Network) Compile(o policy.Options) (*policy.Phases, error) {
	base, err := n.Base().Policy()
	problems := prefixed("network.", err)
	phases := map[string]policy.Spec{}
	for _, name := range slices.Sorted(maps.Keys(n.Phases)) {
		p, err := n.Phases[name].Policy()
		problems = append(problems, prefixed("network.phases."+name+".", err)...)
		phases[name] = p
	}
	if len(problems) > 0 {
		return nil, problems
	}
	out, err := policy.CompilePhases(base, phases, n.Phase, o)
	if err != nil {
		return nil, prefixed("network.", err)
	}
	return out, nil
}

func prefixed(prefix string, err error) policy.Problems {
	ps, _ := errors.AsType[policy.Problems](err)
	out := slices.Clone(ps)
	for i := range out {
		out[i].Field = prefix + out[i].Field
	}
	return out
}

// network checks what can be checked without the site's bundles and bounds.
func (c *checker) network(n *Network) {
	c.oneOf("network.egress_policy", n.EgressPolicy, egresses)
	c.oneOf("network.preflight", n.Preflight, preflights)
	bare := *n
	bare.Bundles = nil
	bare.Phases = maps.Clone(n.Phases)
	for name, p := range bare.Phases {
		c.oneOf("network.phases."+name+".egress_policy", p.EgressPolicy, egresses)
		p.Bundles = nil
		bare.Phases[name] = p
	}
	_, err := bare.Compile(policy.Options{})
	for _, p := range prefixed("", err) {
		if !strings.HasSuffix(p.Field, "egress_policy") || strings.HasSuffix(p.Message, "would say nothing") {
			c.bad(p.Field, p.Remedy, "%s", p.Message)
		}
	}
}

// cloneNetwork makes slices and maps the result's own.
func cloneNetwork(n Network) Network {
	n.AllowedDomains, n.AllowedIPs = slices.Clone(n.AllowedDomains), slices.Clone(n.AllowedIPs)
	n.Bundles, n.Phases = maps.Clone(n.Bundles), maps.Clone(n.Phases)
	return n
}

func overlayNetwork(s, o *Network) {
	put(&s.EgressPolicy, o.EgressPolicy)
	putSlice(&s.AllowedDomains, o.AllowedDomains)
	putSlice(&s.AllowedIPs, o.AllowedIPs)
	if o.Bundles != nil {
		s.Bundles = o.Bundles
	}
	put(&s.Limits, o.Limits)
	if o.Phases != nil {
		s.Phases = o.Phases
	}
	put(&s.Phase, o.Phase)
	put(&s.Preflight, o.Preflight)
}

// network warns of what is right and may not be meant.
func (l *linter) network(n *Network) {
	l.policy("network.", n.Base())
	for _, name := range slices.Sorted(maps.Keys(n.Phases)) {
		l.policy("network.phases."+name+".", n.Phases[name])
	}
}

func (l *linter) policy(prefix string, p NetworkPhase) {
	entries := len(p.AllowedDomains) + len(p.AllowedIPs) + len(p.Bundles)
	switch {
	case p.EgressPolicy == EgressOpen:
		l.add(Warning, prefix+"egress_policy", "open-egress", "the agent could reach any public address: it can leak data and train on answers from outside", "use whitelist with the names it needs")
	case p.EgressPolicy == EgressWhitelist && entries == 0:
		l.add(Warning, prefix+"egress_policy", "empty-whitelist", "a whitelist without entries lets nothing out", "write deny, or list allowed_domains, allowed_ips or bundles")
	case p.EgressPolicy == EgressDeny && entries > 0:
		l.add(Warning, prefix+"egress_policy", "egress-list-unused", "deny lets nothing out, so the allowed names and addresses do not act", "remove them, or write whitelist")
	}
	s, err := p.Policy()
	if err != nil {
		return // said by the check
	}
	for _, f := range policy.Lint(s) {
		l.add(Warning, prefix+f.Field, f.Rule, f.Message, f.Remedy)
	}
}
