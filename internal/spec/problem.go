package spec

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Problem is one mistake in a document. Line and Column count from 1 and are 0
// when the spec did not come from a text.
type Problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Field   string `json:"field"` // path, like fs.writable_dirs[0]
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
}

// Position writes file:line:column as far as it is known.
func (p Problem) Position() string {
	var parts []string
	if p.File != "" {
		parts = append(parts, p.File)
	}
	if p.Line > 0 {
		parts = append(parts, fmt.Sprint(p.Line), fmt.Sprint(p.Column))
	}
	return strings.Join(parts, ":")
}

func (p Problem) object() string {
	pos := p.Position()
	switch {
	case pos == "" && p.Field == "":
		return "spec"
	case pos == "":
		return "field " + p.Field
	case p.Field == "":
		return pos
	}
	return pos + ": " + p.Field
}

func (p Problem) String() string { return p.object() + ": " + p.Message + " (" + p.Remedy + ")" }

// Problems are all mistakes of a document, in its order. As an error it is a
// user error (invalid_argument) that says every one of them.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives the typed error, so that errdefs.From finds it.
func (ps Problems) Unwrap() error {
	if len(ps) == 0 {
		return nil
	}
	msg := ps[0].Message
	if n := len(ps) - 1; n > 0 {
		var rest []string
		for _, p := range ps[1:] {
			rest = append(rest, p.String())
		}
		msg += fmt.Sprintf("; and %d more: %s", n, strings.Join(rest, "; "))
	}
	return errdefs.Userf(errdefs.InvalidArgument, ps[0].object(), ps[0].Remedy, "%s", msg)
}

// err gives nil for no problems, so that callers return a true nil error.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// AsProblems finds the problems in err's chain.
func AsProblems(err error) (Problems, bool) { return errors.AsType[Problems](err) }
