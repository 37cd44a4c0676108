// Package site is what a node's operator says of egress: where names are resolved, what no box
// reaches, the bundles and credentials there are, and what each project's sessions may ask for. It compiles the
// networks of sessions against that.
package site

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/dsec-platform/dsec/internal/egress/bundle"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

// Config is the operator's `egress` section.
type Config struct {
	// Resolvers are upstream name servers, ADDRESS[:PORT]; empty: those of the node's resolv.conf.
	Resolvers []string `yaml:"resolvers"`
	// Never are ranges that no box reaches, on top of what nobody does.
	Never []string `yaml:"never"`
	// Bandwidth of all boxes together, bytes a second; 0: unlimited.
	Bandwidth spec.Bytes `yaml:"bandwidth"`
	// Bundles and Credentials name the operator's files.
	Bundles     string `yaml:"bundles"`
	Credentials string `yaml:"credentials"`
	// Projects bounds what the sessions of a project may ask for; Default is the bound of those that are not named. Without
	// one a project is not bounded.
	Projects map[string]Bound `yaml:"projects"`
	Default  *Bound           `yaml:"default"`
	// Standard is the network of sandboxes of compatibility APIs that do not say one; empty: deny.
	Standard spec.Network `yaml:"standard"`
	// Attach is how boxes get out: by a device, by a proxy, or (auto, or empty) by a proxy where no device can be made.
	Attach Attach `yaml:"attach"`
	// KeepLog bounds the record of decisions of a project, bytes; 0: 256 MiB.
	KeepLog spec.Bytes `yaml:"keep_log"`
}

// Bound is policy.Bound as it is written.
type Bound struct {
	Open    bool               `yaml:"open"`
	Domains []string           `yaml:"domains"`
	IPs     []string           `yaml:"ips"`
	Limits  spec.NetworkLimits `yaml:"limits"`
}

func (b *Bound) policy() *policy.Bound {
	return &policy.Bound{Open: b.Open, Domains: b.Domains, IPs: b.IPs, Limits: b.Limits.Policy()}
}

// Site compiles networks. Safe for concurrent use.
type Site struct {
	trust    Trust
	operator map[string]policy.Bundle
	bounds   map[string]*policy.Bound
	standard *policy.Bound

	mu      sync.Mutex
	derived map[string]map[string]policy.Bundle // by template version
	shown   map[string]shown
}

// New reads the operator's bundles and checks the bounds and the standard network.
func New(c Config, t Trust) (*Site, error) {
	s := &Site{trust: t, bounds: map[string]*policy.Bound{}, derived: map[string]map[string]policy.Bundle{}, shown: map[string]shown{}}
	var err error
	if c.Bundles != "" {
		if s.operator, err = bundle.Read(c.Bundles); err != nil {
			return nil, err
		}
	}
	if c.Default != nil {
		s.standard = c.Default.policy()
	}
	for _, name := range slices.Sorted(maps.Keys(c.Projects)) {
		b := c.Projects[name]
		s.bounds[name] = b.policy()
	}
	if err := checkStandard(&c.Standard); err != nil {
		return nil, err
	}
	for name, b := range s.bounds {
		if err := checkBound(b); err != nil {
			return nil, errdefs.Userf(errdefs.InvalidArgument, "egress.projects."+name, "", "%w", err)
		}
	}
	if s.standard != nil {
		if err := checkBound(s.standard); err != nil {
			return nil, errdefs.Userf(errdefs.InvalidArgument, "egress.default", "", "%w", err)
		}
	}
	return s, nil
}

func checkBound(b *policy.Bound) error {
	_, err := policy.Compile(policy.Spec{}, policy.Options{Bound: b})
	return err
}

// checkStandard checks what needs no template.
func checkStandard(n *spec.Network) error {
	if len(n.Phases) > 0 {
		return errdefs.Userf(errdefs.InvalidArgument, "egress.standard.phases", "write one policy", "a standard network has no phases")
	}
	s := spec.Resolve(spec.Sandbox{Network: *n}, spec.Sandbox{})
	if _, err := spec.Check(&s); err != nil {
		return errdefs.Userf(errdefs.InvalidArgument, "egress.standard", "", "%w", err)
	}
	return nil
}

// Addresses reads ADDRESS[:PORT] of name servers.
func (c *Config) Addresses() (out []netip.AddrPort, err error) {
	for i, text := range c.Resolvers {
		ap, err := netip.ParseAddrPort(text)
		if err != nil {
			a, aerr := netip.ParseAddr(text)
			if aerr != nil {
				return nil, errdefs.Userf(errdefs.InvalidArgument, fmt.Sprintf("egress.resolvers[%d]", i), "write an address like 10.0.0.2 or 10.0.0.2:53", "%q is none", text)
			}
			ap = netip.AddrPortFrom(a, 53)
		}
		out = append(out, ap)
	}
	return out, nil
}

// Prefixes reads Never.
func (c *Config) Prefixes() (out []netip.Prefix, err error) {
	for i, text := range c.Never {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, errdefs.Userf(errdefs.InvalidArgument, fmt.Sprintf("egress.never[%d]", i), "write a CIDR like 10.0.0.0/8", "%q is none", text)
		}
		out = append(out, p)
	}
	return out, nil
}

// Compile makes the policies of a session's network. A nil result with a nil error lets nothing out, ever.
func (s *Site) Compile(project string, t *template.Template, root runtime.Root, n *spec.Network) (*policy.Phases, error) {
	if !n.Opens() && len(n.Phases) == 0 {
		return nil, nil
	}
	bound, ok := s.bounds[project]
	if !ok {
		bound = s.standard
	}
	o := policy.Options{Bundles: s.operator, Bound: bound}
	if usesBundles(n) {
		o.Bundles = bundle.Merge(s.operator, s.ofTemplate(t, root))
	}
	return n.Compile(o)
}

func usesBundles(n *spec.Network) bool {
	if len(n.Bundles) > 0 {
		return true
	}
	for _, p := range n.Phases {
		if len(p.Bundles) > 0 {
			return true
		}
	}
	return false
}

// ofTemplate derives the bundles of a template version, once.
func (s *Site) ofTemplate(t *template.Template, root runtime.Root) map[string]policy.Bundle {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.derived[t.Digest]; ok {
		return b
	}
	tree, done := openLayers(root.Layers)
	defer done()
	b := bundle.Derive(tree, t.Env)
	s.derived[t.Digest] = b
	return b
}
