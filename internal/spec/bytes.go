package spec

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Binary units of Bytes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

var suffixes = []struct {
	name string
	size Bytes
}{{"Ti", TiB}, {"Gi", GiB}, {"Mi", MiB}, {"Ki", KiB}}

// ParseBytes reads a size: an integer number of bytes, or a decimal number with
// a binary suffix (512Ki, 16Mi, 1.5Gi, 2Ti) that comes to whole bytes. Decimal
// suffixes (M, MB) are refused, because half of their users mean the binary ones.
func ParseBytes(s string) (Bytes, error) {
	unit := Bytes(1)
	num := s
	for _, x := range suffixes {
		if n, ok := strings.CutSuffix(s, x.name); ok {
			unit, num = x.size, n
			break
		}
	}
	if n, err := strconv.ParseInt(num, 10, 64); err == nil {
		if n < 0 {
			return 0, fmt.Errorf("size %q is negative", s)
		}
		if n > math.MaxInt64/int64(unit) {
			return 0, fmt.Errorf("size %q is too large", s)
		}
		return Bytes(n) * unit, nil
	}
	if unit > 1 {
		if b, ok := fraction(num, unit); ok {
			return b, nil
		}
	}
	return 0, fmt.Errorf("%q is not a size: write bytes, or a number with Ki, Mi, Gi or Ti, like 512Mi", s)
}

// fraction reads "1.5" of a unit.
func fraction(num string, unit Bytes) (Bytes, bool) {
	whole, frac, ok := strings.Cut(num, ".")
	if !ok || whole == "" || frac == "" || len(whole) > 6 || len(frac) > 6 || !digits(whole) || !digits(frac) {
		return 0, false
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil {
		return 0, false
	}
	v := f * float64(unit)
	if v != math.Trunc(v) || v >= math.MaxInt64 {
		return 0, false
	}
	return Bytes(v), true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// String writes the size with the largest suffix that keeps it exact;
// ParseBytes reads it back to the same value.
func (b Bytes) String() string {
	for _, x := range suffixes {
		if b != 0 && b%x.size == 0 {
			return strconv.FormatInt(int64(b/x.size), 10) + x.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// MarshalYAML writes an integer for a plain number of bytes, else the suffixed form.
func (b Bytes) MarshalYAML() (any, error) {
	if s := b.String(); !digits(s) {
		return s, nil
	}
	return int64(b), nil
}

// UnmarshalYAML reads both forms.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("line %d: a size is a number or a text like 512Mi", n.Line)
	}
	v, err := ParseBytes(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*b = v
	return nil
}

// MarshalJSON writes an integer for a plain number of bytes, else the suffixed form.
func (b Bytes) MarshalJSON() ([]byte, error) {
	if s := b.String(); !digits(s) {
		return json.Marshal(s)
	}
	return strconv.AppendInt(nil, int64(b), 10), nil
}

// UnmarshalJSON reads both forms.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	s := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
	}
	v, err := ParseBytes(s)
	if err != nil {
		return err
	}
	*b = v
	return nil
}

// Set and Type make *Bytes a flag value.
func (b *Bytes) Set(s string) error {
	v, err := ParseBytes(s)
	if err == nil {
		*b = v
	}
	return err
}

// Type names the flag's value in help texts.
func (b *Bytes) Type() string { return "size" }
