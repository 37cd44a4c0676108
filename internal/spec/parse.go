package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxDocument bounds the text of a spec.
const MaxDocument = 1 << 20

// Top-level keys of a document.
const (
	sandboxKey   = "sandbox_spec"
	schedulerKey = "scheduler_config"
)

// Document is a parsed text: one sandbox_spec, one scheduler_config, or both.
type Document struct {
	File      string
	Sandbox   *Sandbox
	Scheduler *Scheduler

	places map[string]place // full path, from the top key where there is one
	prefix map[string]string
	nodes  []*yaml.Node
}

// Parse reads a YAML or JSON text strictly. It holds sandbox_spec and
// scheduler_config under their keys, in one document or in several separated by
// ---, or the bare mapping of one of them. On an error it is a Problems with
// every mistake found; file only names the text in them. The document is also
// returned when its structure could be read, so that it can be linted.
func Parse(file string, data []byte) (doc *Document, err error) {
	defer func() { // the YAML scanner is not ours: a panic of it is a bad text, not a crash
		if r := recover(); r != nil {
			doc, err = nil, Problems{{File: file, Message: fmt.Sprintf("cannot be read as YAML: %v", r), Remedy: "check the indentation and quotes"}}
		}
	}()
	if len(data) > MaxDocument {
		return nil, Problems{{File: file, Message: fmt.Sprintf("is %d bytes long, more than %d", len(data), MaxDocument), Remedy: "a spec is a page of text; check that this is the right file"}}
	}
	doc = &Document{File: file, places: map[string]place{}, prefix: map[string]string{}}
	d := &decoder{file: file, places: doc.places}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var n yaml.Node
		if err := dec.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, append(d.found, syntaxProblem(file, err))
		}
		if len(n.Content) == 1 && n.Content[0].ShortTag() != "!!null" {
			doc.nodes = append(doc.nodes, n.Content[0])
			doc.read(d, n.Content[0])
		}
	}
	if len(doc.nodes) == 0 {
		return nil, Problems{{File: file, Message: "is empty", Remedy: "start with sandbox_spec: and its fields"}}
	}
	if len(d.found) == 0 {
		d.found = doc.validate()
	}
	return doc, d.found.err()
}

// read takes one YAML document.
func (doc *Document) read(d *decoder, n *yaml.Node) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, "", "start with sandbox_spec: and its fields", "is %s, not a mapping", kindOf(n))
		return
	}
	if !wrapped(n) {
		if bareScheduler(n) {
			doc.scheduler(d, n, n, "")
		} else {
			doc.sandbox(d, n, n, "")
		}
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		switch key.Value {
		case sandboxKey:
			doc.sandbox(d, key, val, sandboxKey)
		case schedulerKey:
			doc.scheduler(d, key, val, schedulerKey)
		default:
			d.problem(key, key.Value, unknownRemedy(key.Value, map[string]int{sandboxKey: 0, schedulerKey: 1}, ""), "is not a known field")
		}
	}
}

func (doc *Document) sandbox(d *decoder, key, val *yaml.Node, path string) {
	if doc.Sandbox != nil {
		d.problem(key, sandboxKey, "keep one", "is given twice")
		return
	}
	doc.Sandbox, doc.prefix[sandboxKey] = new(Sandbox), path
	d.decode(val, reflect.ValueOf(doc.Sandbox).Elem(), path)
}

func (doc *Document) scheduler(d *decoder, key, val *yaml.Node, path string) {
	if doc.Scheduler != nil {
		d.problem(key, schedulerKey, "keep one", "is given twice")
		return
	}
	doc.Scheduler, doc.prefix[schedulerKey] = new(Scheduler), path
	d.decode(val, reflect.ValueOf(doc.Scheduler).Elem(), path)
}

func wrapped(n *yaml.Node) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if k := n.Content[i].Value; k == sandboxKey || k == schedulerKey || Nearest(k, []string{sandboxKey, schedulerKey}) != "" {
			return true
		}
	}
	return false
}

// bareScheduler tells whether the keys of a bare mapping are the scheduler's.
func bareScheduler(n *yaml.Node) bool {
	known := fieldsOf(reflect.TypeFor[Scheduler]())
	for i := 0; i+1 < len(n.Content); i += 2 {
		if _, ok := known[n.Content[i].Value]; ok {
			return true
		}
	}
	return false
}

// at gives the full path and place of a field of one of the two parts; a field
// that is not written is placed at the nearest parent that is.
func (doc *Document) at(part, field string) (string, place) {
	full := join(doc.prefix[part], field)
	for p := full; ; {
		if pl, ok := doc.places[p]; ok {
			return full, pl
		}
		i := strings.LastIndexAny(p, ".[")
		if i < 0 {
			return full, doc.places[""]
		}
		p = p[:i]
	}
}

// said tells whether the document itself gives the field.
func (doc *Document) said(part, field string) bool {
	_, ok := doc.places[join(doc.prefix[part], field)]
	return ok
}

var lineOf = regexp.MustCompile(`line (\d+): ?`)

func syntaxProblem(file string, err error) Problem {
	p := Problem{File: file, Message: strings.TrimPrefix(err.Error(), "yaml: "), Remedy: "check the indentation (spaces, not tabs), the colons and the quotes"}
	if m := lineOf.FindStringSubmatch(p.Message); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		p.Column = 1
		p.Message = strings.Replace(p.Message, m[0], "", 1)
	}
	return p
}
