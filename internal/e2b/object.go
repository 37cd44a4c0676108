package e2b

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// maxBody bounds a request of the control API.
const maxBody = 1 << 20

// object is a JSON object that is read field by field, so that what nobody reads can be refused:
// SDKs add fields over time, and one that is ignored is a promise broken in silence.
type object struct {
	path   string // of the object itself, with a dot behind it; empty for the body
	fields map[string]json.RawMessage
}

// readObject reads the body of a request, which is one object. An empty body is an empty object.
func readObject(w http.ResponseWriter, r *http.Request) (*object, error) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, errdefs.Limitf(errdefs.TooLarge, "request body", fmt.Sprintf("send at most %d bytes", maxBody), "is larger than that")
	}
	if err != nil {
		return nil, err
	}
	return parseObject("", b)
}

func parseObject(path string, b []byte) (*object, error) {
	o := &object{path: path, fields: map[string]json.RawMessage{}}
	if len(bytes.TrimSpace(b)) == 0 {
		return o, nil
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&o.fields); err != nil || o.fields == nil {
		return nil, o.malformed("", "an object")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, o.malformed("", "one object")
	}
	return o, nil
}

func (o *object) malformed(name, want string) error {
	what := "field " + o.path + name
	if name == "" {
		if what = "request body"; o.path != "" {
			what = "field " + strings.TrimSuffix(o.path, ".")
		}
	}
	return errdefs.Userf(errdefs.InvalidArgument, what, "send "+want, "is not %s", want)
}

// raw takes a field; nil when it is absent or null.
func (o *object) raw(name string) json.RawMessage {
	v := o.fields[name]
	delete(o.fields, name)
	if string(v) == "null" {
		return nil
	}
	return v
}

// bool takes a boolean; nil when it is not said.
func (o *object) bool(name string) (*bool, error) { return take[bool](o, name, "true or false") }

// text takes a string.
func (o *object) text(name string) (string, error) {
	v, err := take[string](o, name, "a string")
	if v == nil {
		return "", err
	}
	return *v, err
}

// texts takes a list of strings.
func (o *object) texts(name string) ([]string, error) {
	v, err := take[[]string](o, name, "a list of strings")
	if v == nil {
		return nil, err
	}
	return *v, err
}

// strings takes a map of strings.
func (o *object) strings(name string) (map[string]string, error) {
	raw := o.raw(name)
	if raw == nil {
		return nil, nil
	}
	var v map[string]*string
	if json.Unmarshal(raw, &v) != nil {
		return nil, o.malformed(name, "a map of strings")
	}
	out := make(map[string]string, len(v))
	for k, s := range v {
		if s == nil { // which encoding/json would take for an empty one
			return nil, o.malformed(name, "a map of strings")
		}
		out[k] = *s
	}
	return out, nil
}

// seconds takes a whole number of seconds; -1 when it is not said. A number that is written
// as a fraction, as some languages do, is taken if it is whole.
func (o *object) seconds(name string) (int, error) {
	v, err := take[float64](o, name, "a number of seconds")
	if err != nil || v == nil {
		return -1, err
	}
	if *v != math.Trunc(*v) || *v < 0 || *v > maxSeconds {
		return 0, errdefs.Userf(errdefs.InvalidArgument, "field "+o.path+name, fmt.Sprintf("use 0 to %d", maxSeconds), "%v is no number of seconds that a sandbox can live", *v)
	}
	return int(*v), nil
}

// object takes a nested object; nil when it is not said.
func (o *object) object(name string) (*object, error) {
	raw := o.raw(name)
	if raw == nil {
		return nil, nil
	}
	return parseObject(o.path+name+".", raw)
}

// refuse takes a field that is known and cannot be done. Why follows "field …: ".
func (o *object) refuse(name, remedy, why string) error {
	if v := o.raw(name); !says(v) {
		return nil
	}
	return errdefs.Userf(errdefs.Unsupported, "field "+o.path+name, remedy, "%s", why)
}

// end refuses what nobody has read, unless it says nothing.
func (o *object) end() error {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		if says(o.fields[name]) {
			return errdefs.Userf(errdefs.InvalidArgument, "field "+o.path+Clip(name), "leave it out; docs/e2b.md has the fields that there are",
				"is not known here, and is not ignored because it may ask for something")
		}
	}
	return nil
}

// says tells whether a value asks for anything: null, false, 0 and what is empty do not.
func says(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", "false", "0", `""`:
		return false
	}
	var list []json.RawMessage
	var fields map[string]json.RawMessage
	return (json.Unmarshal(raw, &list) != nil || len(list) > 0) && (json.Unmarshal(raw, &fields) != nil || len(fields) > 0)
}

func take[T any](o *object, name, want string) (*T, error) {
	raw := o.raw(name)
	if raw == nil {
		return nil, nil
	}
	v := new(T)
	if json.Unmarshal(raw, v) != nil {
		return nil, o.malformed(name, want)
	}
	return v, nil
}

// Clip bounds and cleans what a caller sent before it is said back.
func Clip(s string) string {
	const most = 120
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= most {
		return s
	}
	for s = s[:most]; !utf8.ValidString(s); {
		s = s[:len(s)-1]
	}
	return s + "…"
}
