package dockerfile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Parse reads a Dockerfile. Errors are of class user and name the line.
func Parse(text []byte, o Options) (*Plan, error) {
	if len(text) > MaxSize {
		return nil, errdefs.Userf(errdefs.TooLarge, "Dockerfile", "put data into files and COPY them", "has %d bytes, more than %d", len(text), MaxSize)
	}
	ast, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, unreadable(err)
	}
	if ast.EscapeToken != parser.DefaultEscapeToken {
		return nil, errdefs.Userf(errdefs.Unsupported, "Dockerfile", "remove the escape directive", "only the backslash is an escape character here")
	}
	stages, meta, err := instructions.Parse(ast.AST, nil)
	if err != nil {
		return nil, unreadable(err)
	}
	if len(stages) > 1 {
		return nil, refused(lineOf(stages[1].Location), "FROM", "build the first stage as a template of its own and begin with FROM its name", "a build has one stage here")
	}
	if len(stages) == 0 {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "Dockerfile", "begin with FROM IMAGE", "it has no FROM")
	}
	r := reader{o: o, plan: &Plan{}, unused: maps.Clone(o.Args), lex: shell.NewLex(parser.DefaultEscapeToken)}
	if err := r.from(&stages[0], meta); err != nil {
		return nil, err
	}
	for _, c := range stages[0].Commands {
		if err := r.command(c); err != nil {
			return nil, err
		}
		if len(r.plan.Steps) > MaxSteps {
			return nil, errdefs.Userf(errdefs.TooLarge, "Dockerfile", "join commands with &&", "has more than %d steps", MaxSteps)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.unused)) {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "build argument "+name, "declare it: ARG "+name, "the Dockerfile does not use it")
	}
	r.plan.Start.Command = r.start()
	return r.plan, nil
}

// reader turns one stage into steps.
type reader struct {
	o      Options
	plan   *Plan
	lex    *shell.Lex
	meta   []string // ARGs before FROM
	args   []string // ARGs so far, "K=V"
	env    []string // ENVs so far, as far as the file tells
	shell  []string
	unused map[string]string // build arguments that nothing has declared yet

	entrypoint, cmd *instructions.ShellDependantCmdLine
}

func unreadable(err error) error {
	return errdefs.Userf(errdefs.InvalidArgument, "Dockerfile", "see docs/templates.md for what is understood", "%w", err)
}

func refused(line int, what, remedy, format string, args ...any) error {
	return errdefs.Userf(errdefs.Unsupported, fmt.Sprintf("Dockerfile line %d: %s", line, what), remedy, format, args...)
}

func lineOf(at []parser.Range) int {
	if len(at) == 0 {
		return 0
	}
	return at[0].Start.Line
}

// from finds the base.
func (r *reader) from(st *instructions.Stage, meta []instructions.ArgCommand) error {
	for i := range meta {
		if err := r.arg(&meta[i], &r.meta); err != nil {
			return err
		}
	}
	line := lineOf(st.Location)
	var err error
	if r.plan.From, err = r.word(line, st.BaseName, r.meta); err != nil {
		return err
	}
	if r.plan.Platform, err = r.word(line, st.Platform, r.meta); err != nil {
		return err
	}
	switch r.plan.From {
	case "":
		return refused(line, "FROM", "give the ARG a default", "the image's name is empty")
	case "scratch":
		return refused(line, "FROM scratch", "begin with an image or a template", "an environment needs more than nothing")
	}
	return nil
}

func (r *reader) word(line int, word string, env []string) (string, error) {
	out, _, err := r.lex.ProcessWord(word, shell.EnvsFromSlice(env))
	if err != nil {
		return "", refused(line, word, `write \$ for a dollar sign`, "cannot be expanded: %v", err)
	}
	return out, nil
}

// arg declares build arguments. A default may use arguments and variables that the file has set before.
func (r *reader) arg(c *instructions.ArgCommand, into *[]string) error {
	for _, a := range c.Args {
		value, given := r.o.Args[a.Key]
		delete(r.unused, a.Key)
		switch {
		case given:
		case a.Value != nil:
			var err error
			if value, err = r.word(lineOf(c.Location()), *a.Value, slices.Concat(*into, r.env)); err != nil {
				return err
			}
		case into == &r.args && has(r.meta, a.Key): // declared again, to be seen inside the stage
			value, _ = lookup(r.meta, a.Key)
		default:
			continue
		}
		*into = set(*into, a.Key, value)
	}
	return nil
}

func set(env []string, k, v string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, k+"=") })
	return append(env, k+"="+v)
}

func lookup(env []string, k string) (string, bool) {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, k+"="); ok {
			return v, true
		}
	}
	return "", false
}

func has(env []string, k string) bool { _, ok := lookup(env, k); return ok }
