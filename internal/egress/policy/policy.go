package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// Policy is a compiled Spec. It is immutable and safe for concurrent use.
type Policy struct {
	doc     document
	mode    Mode
	rules   []rule
	exact   map[string][]int // plain name → rules
	wild    []int
	ranges  []int
	private []netip.Prefix
	bound   *bound
	limits  Limits
}

// document is the stored form: all that Compile was given, so that a policy survives a restart with
// the bundles it was made with.
type document struct {
	Version int               `json:"version"`
	Phase   string            `json:"phase,omitempty"`
	Spec    Spec              `json:"spec"`
	Bundles map[string]Bundle `json:"bundles,omitempty"`
	Bound   *Bound            `json:"bound,omitempty"`
}

// MarshalJSON writes what Load reads. It holds no secret.
func (p *Policy) MarshalJSON() ([]byte, error) { return json.Marshal(p.doc) }

// Load reads a stored policy.
func Load(data []byte) (*Policy, error) {
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("stored egress policy: %w", err)
	}
	if d.Version != 1 {
		return nil, fmt.Errorf("stored egress policy: version %d is not known", d.Version)
	}
	return Compile(d.Spec, Options{Bundles: d.Bundles, Bound: d.Bound, Phase: d.Phase})
}

// Mode is deny, whitelist or open.
func (p *Policy) Mode() Mode { return p.mode }

// Phase is the name given to Compile.
func (p *Policy) Phase() string { return p.doc.Phase }

// Spec is what was compiled.
func (p *Policy) Spec() Spec { return p.doc.Spec }

// Limits are those in force: defaults filled, held to the project's.
func (p *Policy) Limits() Limits { return p.limits }

// Closed tells that nothing can be reached: the box needs loopback only.
func (p *Policy) Closed() bool { return p.mode == Deny || p.mode == Whitelist && len(p.rules) == 0 }

// Names lists the plain names of the rules, each once, in their order: those that a preflight can resolve.
func (p *Policy) Names() []string {
	var out []string
	seen := map[string]bool{}
	for _, r := range p.rules {
		if !r.prefix.IsValid() && !r.name.wild && !seen[r.name.name] {
			seen[r.name.name] = true
			out = append(out, r.name.name)
		}
	}
	return out
}

// Endpoints lists the TCP ports that rules name for a plain name, for a reachability test;
// ranges of ports give their first.
func (p *Policy) Endpoints(name string) []uint16 {
	var out []uint16
	for _, i := range p.exact[name] {
		r := p.rules[i]
		switch {
		case r.protocol == UDP:
		case r.ports == nil && r.protocol == "":
			out = append(out, 443)
		case r.ports == nil && r.protocol == HTTP:
			out = append(out, 80)
		case r.ports == nil:
			out = append(out, 443)
		default:
			for _, s := range r.ports {
				out = append(out, s.first)
			}
		}
	}
	return out
}

// Credentials lists the names of the secrets that rules use.
func (p *Policy) Credentials() []string {
	var out []string
	for _, r := range p.rules {
		if r.credential != "" {
			out = append(out, r.credential)
		}
	}
	return out
}
