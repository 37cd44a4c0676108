package spec

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// place is a position in the text.
type place struct{ line, column int }

// decoder fills a struct from a YAML node by its yaml tags, and collects every
// problem instead of stopping at the first.
type decoder struct {
	file   string
	places map[string]place // field path → where its value stands
	found  Problems
}

func (d *decoder) problem(n *yaml.Node, field, remedy, format string, args ...any) {
	d.found = append(d.found, Problem{File: d.file, Line: n.Line, Column: n.Column, Field: field, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

var (
	bytesType  = reflect.TypeFor[Bytes]()
	rootFSType = reflect.TypeFor[RootFS]()
	mountType  = reflect.TypeFor[DataMount]()
)

// decode fills v from n. path is "" for a document's own mapping.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.places[path] = place{n.Line, n.Column}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		d.problem(n, path, "give it a value, or leave the key out", "has no value")
		return
	}
	switch v.Type() {
	case bytesType:
		d.size(n, v, path)
		return
	case rootFSType:
		if n.Kind == yaml.ScalarNode {
			r, err := parseRootFS(n.Value)
			if err != nil {
				d.problem(n, path, "write readonly or writable", "%v", err)
			}
			v.Set(reflect.ValueOf(r))
			return
		}
	case mountType:
		if n.Kind == yaml.ScalarNode {
			m, err := parseMount(n.Value)
			if err != nil {
				d.problem(n, path, "write it as /host/path:/box/path", "%v", err)
			}
			v.Set(reflect.ValueOf(m))
			return
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.sequence(n, v, path)
	case reflect.Map:
		d.named(n, v, path)
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.decode(n, p.Elem(), path)
		v.Set(p)
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, "write it as `key: value` lines, indented below it", "is %s, not a mapping", kindOf(n))
		return
	}
	fields := fieldsOf(v.Type())
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		if key.Kind != yaml.ScalarNode {
			d.problem(key, path, "use a plain word as the key", "has a key that is %s", kindOf(key))
			continue
		}
		if first, dup := seen[key.Value]; dup {
			d.problem(key, at, fmt.Sprintf("keep one of the two; the first is on line %d", first), "is given twice")
			continue
		}
		seen[key.Value] = key.Line
		index, ok := fields[key.Value]
		if !ok {
			d.problem(key, at, unknownRemedy(key.Value, fields, path), "is not a known field")
			continue
		}
		d.decode(val, v.Field(index), at)
	}
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.SequenceNode {
		d.problem(n, path, "write it as a list of `- item` lines", "is %s, not a list", kindOf(n))
		return
	}
	if len(n.Content) > maxItems {
		d.problem(n, path, "split it up", "has %d items, more than %d", len(n.Content), maxItems)
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		d.decode(item, out.Index(i), fmt.Sprintf("%s[%d]", path, i))
	}
	v.Set(out)
}

// named fills a map by names that the text chooses.
func (d *decoder) named(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, path, "write it as `name: value` lines, indented below it", "is %s, not a mapping", kindOf(n))
		return
	}
	if len(n.Content)/2 > maxItems {
		d.problem(n, path, "split it up", "has %d entries, more than %d", len(n.Content)/2, maxItems)
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.problem(key, path, "use a plain word as the name", "has a name that is %s", kindOf(key))
			continue
		}
		name := reflect.ValueOf(key.Value).Convert(v.Type().Key())
		if out.MapIndex(name).IsValid() {
			d.problem(key, join(path, key.Value), "keep one of the two", "is given twice")
			continue
		}
		value := reflect.New(v.Type().Elem()).Elem()
		d.decode(val, value, join(path, key.Value))
		out.SetMapIndex(name, value)
	}
	v.Set(out)
}

// maxItems bounds every list and every map of a spec.
const maxItems = 4096

func (d *decoder) size(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		d.problem(n, path, "write bytes or a number with Ki, Mi, Gi or Ti, like 512Mi", "is %s, not a size", kindOf(n))
		return
	}
	b, err := ParseBytes(n.Value)
	if err != nil {
		d.problem(n, path, sizeRemedy(n.Value), "%q is not a size", n.Value)
		return
	}
	v.SetInt(int64(b))
}

// sizeRemedy turns the usual other spellings into ours.
func sizeRemedy(s string) string {
	num := strings.TrimRight(s, "kKmMgGtTiIbB ")
	unit := strings.ToUpper(strings.TrimSpace(s[len(num):]))
	if num != "" && unit != "" && digits(num) && strings.ContainsAny(unit[:1], "KMGT") {
		return fmt.Sprintf("write %s%si", num, unit[:1])
	}
	return "write bytes or a number with Ki, Mi, Gi or Ti, like 512Mi"
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.ScalarNode {
		d.problem(n, path, "give it one value", "is %s, not a single value", kindOf(n))
		return
	}
	tag := n.ShortTag()
	switch v.Kind() {
	case reflect.String:
		if tag == "!!str" {
			v.SetString(n.Value)
			return
		}
		d.problem(n, path, fmt.Sprintf("put it in quotes: %q", n.Value), "is %s, not a text", kindOf(n))
	case reflect.Bool:
		var b bool
		if tag == "!!bool" && n.Decode(&b) == nil {
			v.SetBool(b)
			return
		}
		d.problem(n, path, "write true or false", "%q is not true or false", n.Value)
	case reflect.Int, reflect.Int64:
		var i int64
		if tag == "!!int" && n.Decode(&i) == nil && i >= 0 {
			v.SetInt(i)
			return
		}
		d.problem(n, path, "write a whole number that is not negative", "%q is not such a number", n.Value)
	case reflect.Uint64:
		var u uint64
		if tag == "!!int" && n.Decode(&u) == nil {
			v.SetUint(u)
			return
		}
		d.problem(n, path, "write a whole number that is not negative", "%q is not such a number", n.Value)
	case reflect.Float64:
		f, ok := number(n, tag)
		if ok {
			v.SetFloat(f)
			return
		}
		d.problem(n, path, floatRemedy(n.Value), "%q is not a number of zero or more", n.Value)
	default:
		panic("spec: no decoder for " + v.Type().String())
	}
}

func number(n *yaml.Node, tag string) (float64, bool) {
	var f float64
	if tag != "!!int" && tag != "!!float" || n.Decode(&f) != nil {
		return 0, false
	}
	return f, f >= 0 && !math.IsInf(f, 0) && !math.IsNaN(f)
}

// floatRemedy knows millicores.
func floatRemedy(s string) string {
	if m, ok := strings.CutSuffix(s, "m"); ok {
		if i, err := strconv.ParseUint(m, 10, 32); err == nil {
			return fmt.Sprintf("write %g", float64(i)/1000)
		}
	}
	return "write a number like 2 or 0.5"
}

func fieldsOf(t reflect.Type) map[string]int {
	m := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		m[name] = i
	}
	return m
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case "!!int", "!!float":
			return "a number"
		case "!!bool":
			return "a truth value"
		case "!!null":
			return "nothing"
		}
		return "a text"
	}
	return "something else"
}
