package template

import (
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// expand replaces $NAME and ${NAME} (also with :-, :+ and the like) by the build's environment, as
// a Dockerfile does, and takes quotes and escapes away.
func expand(word string, env []string) (string, error) {
	if !strings.ContainsAny(word, `$\'"`) {
		return word, nil
	}
	out, _, err := shell.NewLex('\\').ProcessWord(word, shell.EnvsFromSlice(env))
	if err != nil {
		return "", errdefs.Userf(errdefs.InvalidArgument, "value "+oneLine(word), `write \$ for a dollar sign`, "cannot be expanded: %w", err)
	}
	return out, nil
}
