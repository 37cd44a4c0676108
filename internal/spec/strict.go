package spec

import (
	"bytes"
	"errors"
	"io"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Strict reads a YAML or JSON text into v, a pointer to a struct with yaml tags, by the
// rules of Parse: every mistake is a Problem with its place, field and remedy. A text
// without content leaves v as it is.
func Strict(file string, data []byte, v any) error {
	var n yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(data)).Decode(&n); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return Problems{syntaxProblem(file, err)}
	}
	if len(n.Content) == 0 || n.Content[0].ShortTag() == "!!null" {
		return nil
	}
	d := &decoder{file: file, places: map[string]place{}}
	d.decode(n.Content[0], reflect.ValueOf(v).Elem(), "")
	return d.found.err()
}
