package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const maxRules = 4096

// Options are what a Spec is compiled against.
type Options struct {
	// Bundles are those that a spec may name.
	Bundles map[string]Bundle
	// Bound is the project's; nil bounds nothing.
	Bound *Bound
	// Phase is the name under which records show the policy: setup, agent, verify; may be empty.
	Phase string
}

// Compile checks s and makes its Policy. Every mistake is one of the Problems that it returns.
func Compile(s Spec, o Options) (*Policy, error) {
	var ps Problems
	p := &Policy{doc: document{Version: 1, Phase: o.Phase, Spec: s, Bound: o.Bound}, mode: s.Mode, exact: map[string][]int{}}
	switch s.Mode {
	case Whitelist, Open:
	case "":
		p.mode = Deny
		if len(s.Domains)+len(s.IPs) > 0 {
			ps.add("egress_policy", "write egress_policy: whitelist", "is missing, and without it the allowed names and addresses would say nothing")
		}
	case Deny:
	default:
		ps.add("egress_policy", "use deny, whitelist or open", "%q is not a policy", s.Mode)
	}
	if n := len(s.Domains) + len(s.IPs); n > maxRules {
		ps.add("allowed_domains", "use wildcards or ranges", "there are %d rules, more than %d", n, maxRules)
		return nil, ps
	}
	bound := ps.bound(o.Bound)
	for i, d := range s.Domains {
		p.domain(&ps, bound, fmt.Sprintf("allowed_domains[%d]", i), fmt.Sprintf("allowed_domains[%d]", i), d)
	}
	for i, g := range s.IPs {
		p.addresses(&ps, bound, fmt.Sprintf("allowed_ips[%d]", i), fmt.Sprintf("allowed_ips[%d]", i), g)
	}
	p.bundles(&ps, bound, s.Bundles, o.Bundles)
	bound.mode(&ps, p.mode)
	p.limits = ps.limits(s.Limits, bound)
	p.bound = bound
	if err := ps.err(); err != nil {
		return nil, err
	}
	if p.mode == Deny {
		p.rules = nil
	}
	p.index()
	return p, nil
}

func (p *Policy) domain(ps *Problems, b *bound, field, label string, d Domain) {
	r, ok := ps.domain(field, label, d)
	if !ok {
		return
	}
	if !b.name(r.name) {
		ps.add(field, "ask for names that the project allows: "+b.names(), "the project does not let its sessions reach %s", r.name)
		return
	}
	p.rules = append(p.rules, r)
}

func (p *Policy) addresses(ps *Problems, b *bound, field, label string, g Range) {
	r, ok := ps.addresses(field, label, g)
	if !ok {
		return
	}
	if !b.prefix(r.prefix) {
		ps.add(field, "ask for ranges that the project allows: "+b.ranges(), "the project does not let its sessions reach %s", r.prefix)
		return
	}
	p.rules = append(p.rules, r)
}

func (p *Policy) bundles(ps *Problems, b *bound, want map[string]bool, have map[string]Bundle) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !want[name] {
			continue
		}
		field := "bundles." + name
		bundle, ok := have[name]
		if !ok {
			known := "list its names in allowed_domains: there are no bundles, for neither the operator's file nor the configuration of tools in the template makes one"
			if len(have) > 0 {
				known = "known are " + strings.Join(slices.Sorted(maps.Keys(have)), ", ")
			}
			ps.add(field, known, "no bundle of this name exists")
			continue
		}
		if p.doc.Bundles == nil {
			p.doc.Bundles = map[string]Bundle{}
		}
		p.doc.Bundles[name] = bundle
		for _, d := range bundle.Domains {
			p.domain(ps, b, field, "bundle "+name, d)
		}
		for _, g := range bundle.IPs {
			p.addresses(ps, b, field, "bundle "+name, g)
		}
	}
}

// index makes the look-up tables; rules keep their order.
func (p *Policy) index() {
	for i, r := range p.rules {
		switch {
		case r.prefix.IsValid():
			p.ranges = append(p.ranges, i)
			if inside(r.prefix, private) {
				p.private = append(p.private, r.prefix)
			}
		case r.name.wild:
			p.wild = append(p.wild, i)
		default:
			p.exact[r.name.name] = append(p.exact[r.name.name], i)
		}
	}
}
