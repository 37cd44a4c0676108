package spec

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Words of fs.rootfs.
const (
	rootReadOnly = "readonly"
	rootWritable = "writable"
)

func parseRootFS(s string) (RootFS, error) {
	ro := s == rootReadOnly
	if !ro && s != rootWritable {
		return RootFS{}, fmt.Errorf("%q is neither %s nor %s", s, rootReadOnly, rootWritable)
	}
	return RootFS{ReadOnly: &ro}, nil
}

func (r RootFS) word() any {
	switch {
	case r.ReadOnly == nil:
		return nil
	case *r.ReadOnly:
		return rootReadOnly
	}
	return rootWritable
}

// MarshalYAML writes readonly or writable.
func (r RootFS) MarshalYAML() (any, error) { return r.word(), nil }

// MarshalJSON writes "readonly" or "writable".
func (r RootFS) MarshalJSON() ([]byte, error) { return json.Marshal(r.word()) }

type rootFSFields RootFS

// UnmarshalYAML reads the word or the mapping {readonly: bool}.
func (r *RootFS) UnmarshalYAML(n *yaml.Node) (err error) {
	if n.Kind == yaml.ScalarNode {
		*r, err = parseRootFS(n.Value)
		return err
	}
	return n.Decode((*rootFSFields)(r))
}

// UnmarshalJSON reads the word, null, or the object {"readonly": bool}.
func (r *RootFS) UnmarshalJSON(data []byte) (err error) {
	var s string
	if json.Unmarshal(data, &s) == nil && s != "" {
		*r, err = parseRootFS(s)
		return err
	}
	return json.Unmarshal(data, (*rootFSFields)(r))
}

// parseMount reads source:target[:ro|rw].
func parseMount(s string) (DataMount, error) {
	p := strings.Split(s, ":")
	if len(p) < 2 || len(p) > 3 || p[0] == "" || p[1] == "" {
		return DataMount{}, fmt.Errorf("%q is not source:target", s)
	}
	m := DataMount{Source: p[0], Target: p[1]}
	if len(p) == 3 {
		ro := p[2] == "ro"
		if !ro && p[2] != "rw" {
			return DataMount{}, fmt.Errorf("%q: a mount ends with :ro or nothing", s)
		}
		m.ReadOnly = &ro
	}
	return m, nil
}

type dataMountFields DataMount

// UnmarshalYAML reads "source:target[:ro]" or the mapping.
func (m *DataMount) UnmarshalYAML(n *yaml.Node) (err error) {
	if n.Kind == yaml.ScalarNode {
		*m, err = parseMount(n.Value)
		return err
	}
	return n.Decode((*dataMountFields)(m))
}

// UnmarshalJSON reads "source:target[:ro]" or the object.
func (m *DataMount) UnmarshalJSON(data []byte) (err error) {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*m, err = parseMount(s)
		return err
	}
	return json.Unmarshal(data, (*dataMountFields)(m))
}
