package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Phases are the policies of a session by name. The seeds' names are setup, agent and verify; any
// name will do.
type Phases struct {
	byName map[string]*Policy
	first  string
}

// CompilePhases compiles base, the policy of a session without phases, and one whole policy a
// phase. A session starts in the phase first; empty: setup where it exists, else base, whose name is
// the empty one.
func CompilePhases(base Spec, phases map[string]Spec, first string, o Options) (*Phases, error) {
	out := &Phases{byName: map[string]*Policy{}, first: first}
	var ps Problems
	add := func(name, prefix string, s Spec) {
		o.Phase = name
		p, err := Compile(s, o)
		if bad, ok := errors.AsType[Problems](err); ok {
			for _, b := range bad {
				b.Field = prefix + b.Field
				ps = append(ps, b)
			}
		}
		out.byName[name] = p
	}
	add("", "", base)
	for _, name := range slices.Sorted(maps.Keys(phases)) {
		if f, ok := Fold(name); !ok || f != name || len(name) > 63 {
			ps.add("phases."+name, "use up to 63 lower-case letters, digits and -", "is not a name of a phase")
			continue
		}
		add(name, "phases."+name+".", phases[name])
	}
	if _, ok := phases["setup"]; ok && first == "" {
		out.first = "setup"
	}
	if _, ok := out.byName[out.first]; !ok {
		ps.add("phase", out.remedy(), "%q is not a phase of this policy", first)
	}
	if err := ps.err(); err != nil {
		return nil, err
	}
	return out, nil
}

// First is the policy that a session starts with.
func (p *Phases) First() *Policy { return p.byName[p.first] }

// Phase gives the policy of a name, or an error that lists the names.
func (p *Phases) Phase(name string) (*Policy, error) {
	if q, ok := p.byName[name]; ok {
		return q, nil
	}
	return nil, errdefs.Userf(errdefs.NotFound, "phase "+name, p.remedy(), "the session's policy has no such phase")
}

// Names lists the phases, without the empty one.
func (p *Phases) Names() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(p.byName)), func(s string) bool { return s == "" })
}

// Needed tells whether any phase lets anything out.
func (p *Phases) Needed() bool {
	for _, q := range p.byName {
		if !q.Closed() {
			return true
		}
	}
	return false
}

// Datagrams names a rule of UDP, empty when there is none: only a device carries it.
func (p *Phases) Datagrams() string {
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		for _, r := range p.byName[name].rules {
			if r.protocol == UDP {
				return r.text
			}
		}
	}
	return ""
}

func (p *Phases) remedy() string {
	if names := p.Names(); len(names) > 0 {
		return "use one of: " + strings.Join(names, ", ")
	}
	return "it has none: name phases in the spec, or send a whole network"
}

// phasesDocument is the stored form of Phases.
type phasesDocument struct {
	First  string                     `json:"first,omitempty"`
	ByName map[string]json.RawMessage `json:"by_name"`
}

// MarshalJSON writes what LoadPhases reads. It holds no secret.
func (p *Phases) MarshalJSON() ([]byte, error) {
	d := phasesDocument{First: p.first, ByName: map[string]json.RawMessage{}}
	for name, q := range p.byName {
		b, err := q.MarshalJSON()
		if err != nil {
			return nil, err
		}
		d.ByName[name] = b
	}
	return json.Marshal(d)
}

// LoadPhases reads stored phases.
func LoadPhases(data []byte) (*Phases, error) {
	var d phasesDocument
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("stored egress phases: %w", err)
	}
	p := &Phases{byName: map[string]*Policy{}, first: d.First}
	for name, b := range d.ByName {
		q, err := Load(b)
		if err != nil {
			return nil, err
		}
		p.byName[name] = q
	}
	if p.byName[p.first] == nil {
		return nil, fmt.Errorf("stored egress phases: there is no phase %q", p.first)
	}
	return p, nil
}
