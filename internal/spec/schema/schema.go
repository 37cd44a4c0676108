// Package schema generates the JSON Schema of a spec file from the types of
// package spec, for editors and validators. The committed result is
// docs/spec.schema.json; a test keeps it fresh.
package schema

import (
	"encoding/json"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/dsec-platform/dsec/internal/spec"
)

//go:generate go run ./gen ../../../docs/spec.schema.json

const module = "github.com/dsec-platform/dsec"

// File is a document with its parts under their keys.
type File struct {
	Sandbox   *spec.Sandbox   `json:"sandbox_spec,omitempty"`
	Scheduler *spec.Scheduler `json:"scheduler_config,omitempty"`
}

// Generate makes the schema. The working directory must be the root of the
// repository, because the descriptions are the comments of the source.
func Generate() ([]byte, error) {
	r := &jsonschema.Reflector{Anonymous: true, Mapper: mapType}
	if err := r.AddGoComments(module, "./internal/spec", jsonschema.WithFullComment()); err != nil {
		return nil, err
	}
	s := r.Reflect(&File{})
	for _, extra := range []any{&spec.Sandbox{}, &spec.Scheduler{}} {
		for name, def := range r.Reflect(extra).Definitions {
			s.Definitions[name] = def
		}
	}
	s.Ref = ""
	s.ID = "https://github.com/dsec-platform/dsec/docs/spec.schema.json"
	s.Title = "DSec sandbox_spec and scheduler_config"
	for _, name := range []string{"File", "Sandbox", "Scheduler"} {
		s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Ref: "#/$defs/" + name})
	}
	bound(s.Definitions)
	out, err := json.MarshalIndent(s, "", "  ")
	return append(out, '\n'), err
}

// mapType describes the types that are written in more than one way.
func mapType(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[spec.Bytes]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			{Type: "integer", Minimum: "0"},
			{Type: "string", Pattern: `^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti)$`},
		}}
	case reflect.TypeFor[spec.RootFS]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			enum(spec.Choices()["fs.rootfs"]),
			object("readonly", &jsonschema.Schema{Type: "boolean"}),
		}}
	case reflect.TypeFor[spec.DataMount]():
		m := object("source", &jsonschema.Schema{Type: "string", Pattern: "^/"})
		m.Properties.Set("target", &jsonschema.Schema{Type: "string", Pattern: "^/"})
		m.Properties.Set("readonly", &jsonschema.Schema{Const: true})
		m.Required = []string{"source", "target"}
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string", Pattern: `^/[^:]*:/[^:]+(:ro)?$`}, m}}
	}
	return nil
}

// bound adds what the types cannot say: the words of fixed sets and least values.
func bound(defs jsonschema.Definitions) {
	for path, words := range spec.Choices() {
		parent, field, nested := strings.Cut(path, ".")
		if !nested {
			parent, field = "Sandbox", path
		}
		for name, def := range defs {
			if !strings.EqualFold(name, parent) || def.Properties == nil {
				continue
			}
			if p, ok := def.Properties.Get(field); ok && p.Type == "string" {
				p.Enum = enum(words).Enum
			}
		}
	}
	for _, def := range defs {
		if def.Properties == nil {
			continue
		}
		for p := def.Properties.Oldest(); p != nil; p = p.Next() {
			if p.Value.Type == "integer" || p.Value.Type == "number" {
				p.Value.Minimum = "0"
			}
		}
	}
}

func enum(words []string) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, w := range words {
		s.Enum = append(s.Enum, w)
	}
	return s
}

func object(field string, s *jsonschema.Schema) *jsonschema.Schema {
	o := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	o.Properties.Set(field, s)
	return o
}
