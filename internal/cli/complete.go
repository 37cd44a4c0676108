package cli

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

const (
	// completionPatience is how long a shell's user waits for a server that does not answer.
	completionPatience = 2 * time.Second
	// completed bounds the sessions that are offered, the newest first: nobody looks through more.
	completed = 200
)

type completion = cobra.CompletionFunc

// complete says what the shell offers for arguments and flags. What needs a server offers nothing, and says nothing, where none answers.
func (e *Env) complete(root *cobra.Command) {
	live, one := phases[:4], func(f completion) completion { return e.nth(f) }
	ids := e.sessions(live)
	for path, f := range map[string]completion{
		"exec": e.nth(ids, nil), "shell": one(ids), "inspect": e.sessions(nil), "logs": e.nth(e.sessions(nil), e.operations), "cp": e.copied,
		"stop": ids, "suspend": e.sessions([]string{dsec.Running}), "resume": e.sessions([]string{dsec.Suspended}), "deadline": ids,
		"net check": one(ids), "net switch": e.nth(ids, e.networkPhases), "net log": one(e.sessions(nil)), "net explain": one(e.sessions(nil)),
		"template show": one(e.templateNames), "template rm": e.templateNames, "template verify": e.templateNames,
	} {
		mustFind(root, path).ValidArgsFunction = f
	}
	for _, f := range []struct {
		commands []string
		flag     string
		offer    completion
	}{
		{[]string{""}, "output", fixed("table", "json")},
		{[]string{"create", "run", "rollout"}, "template", e.templateNames},
		{[]string{"create", "run"}, "rootfs", fixed("readonly", "writable")},
		{[]string{"create", "run"}, "seccomp", fixed("default", "network", "build", "debug")},
		{[]string{"create"}, "at-deadline", fixed("stop", "suspend")},
		{[]string{"deadline"}, "then", fixed("stop", "suspend")},
		{[]string{"ps"}, "phase", fixed(phases...)},
	} {
		for _, path := range f.commands {
			if err := mustFind(root, path).RegisterFlagCompletionFunc(f.flag, f.offer); err != nil {
				panic(err) // a flag that is not there
			}
		}
	}
}

func mustFind(root *cobra.Command, path string) *cobra.Command {
	cmd, rest, err := root.Find(strings.Fields(path))
	if err != nil || len(rest) > 0 {
		panic("no command " + path)
	}
	return cmd
}

func fixed(values ...string) completion {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// nth offers for each argument what its place asks for; nil leaves the place to the shell, and there is nothing behind the last.
func (e *Env) nth(places ...completion) completion {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) < len(places) && places[len(args)] != nil {
			return places[len(args)](cmd, args, begun)
		}
		if places[len(places)-1] == nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// asked gives a client and a context for a question of the shell.
func (e *Env) asked(cmd *cobra.Command) (*dsec.Client, context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completionPatience)
	if !e.ServerAnswers(ctx) {
		return nil, ctx, cancel
	}
	c, _ := e.Client()
	return c, ctx, cancel
}

// sessions offers the project's sessions in one of the phases (nil: in any), with what tells them apart.
func (e *Env) sessions(in []string) completion {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, ctx, cancel := e.asked(cmd)
		defer cancel()
		if c == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for s, err := range c.List(ctx, dsec.ListOptions{Phases: in, NewestFirst: true}) {
			if err != nil || len(out) == completed {
				break
			}
			if id := s.GetId(); strings.HasPrefix(id, begun) && !slices.Contains(args, id) {
				about := strings.Join(slices.DeleteFunc([]string{s.GetPhase(), s.GetTemplate(), s.GetJob(), labelText(s.GetLabels())}, func(s string) bool { return s == "" }), " ")
				out = append(out, cobra.CompletionWithDesc(id, printable(about)))
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// copied offers what cp takes on either side: SESSION: and files here.
func (e *Env) copied(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) >= 2 || strings.Contains(begun, ":") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if len(args) == 1 && parseSide(args[0]).session != "" || strings.ContainsAny(begun, "./") {
		return nil, cobra.ShellCompDirectiveDefault // the other side is here
	}
	out, _ := e.sessions(phases[:4])(cmd, nil, begun)
	for i, s := range out {
		id, about, _ := strings.Cut(s, "\t")
		out[i] = cobra.CompletionWithDesc(id+":/", about)
	}
	return out, cobra.ShellCompDirectiveNoSpace
}

func (e *Env) operations(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, ctx, cancel := e.asked(cmd)
	defer cancel()
	if c == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ops, _ := c.Session(args[0]).Ops(ctx)
	var out []cobra.Completion
	for _, o := range opRows(ops, time.Now())[1:] {
		out = append(out, cobra.CompletionWithDesc(o[0], printable(o[1]+" "+o[5])))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// networkPhases offers the phases of the session that stands before.
func (e *Env) networkPhases(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	c, ctx, cancel := e.asked(cmd)
	defer cancel()
	if c == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	s, err := c.Session(args[0]).Get(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return append(slices.Sorted(maps.Keys(s.GetSpec().GetNetwork().GetPhases())), "base"), cobra.ShellCompDirectiveNoFileComp
}

// templateNames offers names without versions; those of projects are ids, with what the project calls them.
func (e *Env) templateNames(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completionPatience)
	defer cancel()
	store, err := e.templates(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, _ := store.List(ctx)
	var out []cobra.Completion
	for _, t := range list {
		about := t.GetSource()
		if t.GetProject() != "" {
			about = t.GetAlias() + " of project " + t.GetProject()
		}
		if t.GetNewest() && strings.HasPrefix(t.GetName(), begun) && !slices.Contains(args, t.GetName()) {
			out = append(out, cobra.CompletionWithDesc(t.GetName(), printable(about)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
