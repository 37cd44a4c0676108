// Package bundle makes the named groups of rules that a policy may ask for: pypi, npm, go, apt,
// git, or an operator's own. They come from the operator's file and from the tool configuration that a
// template brings along, mirrors included; none is compiled in, because where a site's packages come
// from only the site knows.
package bundle

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// file is the operator's file, as text forms of rules.
type file struct {
	Bundles map[string]struct {
		Domains []string `yaml:"allowed_domains,omitempty"`
		IPs     []string `yaml:"allowed_ips,omitempty"`
	} `yaml:"bundles"`
}

// Read reads the operator's file.
func Read(path string) (map[string]policy.Bundle, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "file "+path, "name a readable file of bundles", "%w", err)
	}
	return Parse(path, data)
}

// Parse reads the text of an operator's file; name stands in errors.
func Parse(name string, data []byte) (map[string]policy.Bundle, error) {
	var f file
	y := yaml.NewDecoder(bytes.NewReader(data))
	y.KnownFields(true)
	if err := y.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "file "+name, "write bundles: {NAME: {allowed_domains: […], allowed_ips: […]}}", "%w", err)
	}
	out := map[string]policy.Bundle{}
	for n, b := range f.Bundles {
		made := policy.Bundle{Source: "operator"}
		for _, t := range b.Domains {
			d, err := policy.ParseDomain(t)
			if err != nil {
				return nil, bad(name, n, err)
			}
			made.Domains = append(made.Domains, d)
		}
		for _, t := range b.IPs {
			r, err := policy.ParseRange(t)
			if err != nil {
				return nil, bad(name, n, err)
			}
			made.IPs = append(made.IPs, r)
		}
		if _, err := policy.Compile(policy.Spec{Mode: policy.Whitelist, Bundles: map[string]bool{n: true}}, policy.Options{Bundles: map[string]policy.Bundle{n: made}}); err != nil {
			return nil, bad(name, n, err)
		}
		out[n] = made
	}
	return out, nil
}

func bad(file, name string, err error) error {
	return errdefs.Userf(errdefs.InvalidArgument, file+": bundle "+name, "correct the rule", "%w", err)
}

// Merge joins bundles of the same name: the operator's rules first, then those of the template.
func Merge(operator, template map[string]policy.Bundle) map[string]policy.Bundle {
	out := maps.Clone(template)
	if out == nil {
		out = map[string]policy.Bundle{}
	}
	for n, b := range operator {
		t, ok := out[n]
		if ok {
			b.Domains = append(append([]policy.Domain{}, b.Domains...), t.Domains...)
			b.IPs = append(append([]policy.Range{}, b.IPs...), t.IPs...)
			b.Source += ", " + t.Source
		}
		out[n] = b
	}
	return out
}
