package policy

import (
	"fmt"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Problem is one mistake in a Spec. Field is a path below the policy: allowed_domains[2].
type Problem struct{ Field, Message, Remedy string }

// Problems are all mistakes of a Spec, in its order. As an error it is a user error.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = fmt.Sprintf("field %s: %s (%s)", p.Field, p.Message, p.Remedy)
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
		msg += fmt.Sprintf("; and %d more: %s", n, strings.ReplaceAll(ps[1:].Error(), "\n", "; "))
	}
	return errdefs.Userf(errdefs.InvalidArgument, "field "+ps[0].Field, ps[0].Remedy, "%s", msg)
}

func (ps *Problems) add(field, remedy, format string, args ...any) {
	*ps = append(*ps, Problem{Field: field, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}
