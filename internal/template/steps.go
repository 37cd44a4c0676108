package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// StepKind is what a Step does.
type StepKind string

const (
	StepRun     StepKind = "RUN"     // run a command in a box and keep what it wrote
	StepCopy    StepKind = "COPY"    // put files of an archive in
	StepEnv     StepKind = "ENV"     // set variables, of later steps and of the template's sessions
	StepWorkdir StepKind = "WORKDIR" // go to a directory, made if absent, which becomes the template's
	StepUser    StepKind = "USER"    // become a user, who becomes the template's
)

// Step is one instruction of a build. Steps act one after another upon the layers, the
// environment, the directory and the user so far.
type Step struct {
	Kind StepKind
	// Label is how the author knows it, such as "line 7: RUN make": for progress and errors.
	Label string
	// Script of a RUN is run by Shell (empty: /bin/sh -c), or with Login by a login shell, bash
	// where there is one. Argv is a program and its arguments instead.
	Script string
	Shell  []string
	Login  bool
	Argv   []string
	// Env are the variables of an ENV, each "K=V"; the values are expanded.
	Env []string
	// Args are variables of this step alone, each "K=V"; those of the environment win.
	Args []string
	// Dir of a WORKDIR; expanded; relative to the directory so far.
	Dir string
	// User of a USER; expanded. Of a RUN, instead of the user so far.
	User string
	Copy *CopyStep
	// Force runs it again though its result is kept.
	Force bool
}

// begin lays the request's defaults over the source's.
func (b *build) begin() {
	b.config.env = mergeEnv(b.config.env, b.req.Env)
	if b.req.Cwd != "" {
		b.config.cwd = b.req.Cwd
	}
	if b.req.User != "" {
		b.config.user = b.req.User
	}
}

// steps runs those of the request.
func (b *build) steps(ctx context.Context) error {
	n := len(b.req.Steps)
	for i := range b.req.Steps {
		st := &b.req.Steps[i]
		b.at = Progress{Stage: fmt.Sprintf("step %d/%d", i+1, n), Step: i + 1}
		b.say(st.Label)
		if err := b.step(ctx, st); err != nil {
			return failedStep(ctx, st.Label, err)
		}
	}
	return nil
}

// failedStep names the step in what is not the platform's failure nor the end of ctx.
func failedStep(ctx context.Context, label string, err error) error {
	e := *errdefs.From(err)
	if ctx.Err() != nil || e.Class == errdefs.Infrastructure {
		return err
	}
	if e.Object != "" && e.Object != "command" {
		e.Message = e.Object + ": " + e.Message
	}
	e.Object = oneLine(label)
	return errStep{&e}
}

func (b *build) step(ctx context.Context, st *Step) error {
	switch st.Kind {
	case StepRun:
		return b.runStep(ctx, st)
	case StepCopy:
		return b.copyStep(ctx, st)
	case StepEnv:
		return b.envStep(st)
	case StepWorkdir:
		return b.workdirStep(ctx, st)
	case StepUser:
		return b.userStep(st)
	}
	return errdefs.Userf(errdefs.InvalidArgument, "step "+string(st.Kind), "use RUN, COPY, ENV, WORKDIR or USER", "there is no such instruction")
}

func (b *build) say(message string) {
	p := b.at
	p.Message = message
	b.progress(p)
}

// env is the environment of a step's command.
func (b *build) env(st *Step) []string { return mergeEnv(st.Args, b.config.env) }

// words is the environment by which a step's words are expanded: PATH is what processes get that are
// given none.
func (b *build) words(st *Step) []string { return mergeEnv([]string{defaultPath}, b.env(st)) }

const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (b *build) envStep(st *Step) error {
	before := b.words(st)
	for _, kv := range st.Env {
		k, v, ok := strings.Cut(kv, "=")
		v, err := expand(v, before) // as they were before the instruction
		if err != nil {             // without the value
			return errdefs.Userf(errdefs.InvalidArgument, "variable "+oneLine(k), `write \$ for a dollar sign`, "its value cannot be expanded")
		}
		if !ok || k == "" || strings.ContainsRune(k+v, 0) {
			return errdefs.Userf(errdefs.InvalidArgument, "variable "+oneLine(k), "write NAME=value", "not a variable")
		}
		b.config.env = mergeEnv(b.config.env, []string{k + "=" + v})
	}
	return nil
}

func (b *build) userStep(st *Step) error {
	name, err := expand(st.User, b.words(st))
	if err != nil {
		return err
	}
	view, err := layer.OpenView(b.infos)
	if err != nil {
		return err
	}
	defer view.Close()
	if _, err := accountOf(view, name); err != nil {
		return err
	}
	b.config.user = name
	return nil
}

// workdirStep makes the directory, as the user so far, where there is none.
func (b *build) workdirStep(ctx context.Context, st *Step) error {
	dir, err := expand(st.Dir, b.words(st))
	if err != nil {
		return err
	}
	dir = b.absolute(dir)
	view, err := layer.OpenView(b.infos)
	if err != nil {
		return err
	}
	defer view.Close()
	o := newOver(view)
	name, a, exists, err := view.Resolve(strings.TrimPrefix(dir, "/"))
	switch {
	case err != nil:
		return pathError(dir, err)
	case exists && !a.IsDir():
		return errdefs.Userf(errdefs.InvalidArgument, "directory "+dir, "choose another path", "there is a file of that name")
	case !exists:
		who, err := accountOf(view, b.config.user)
		if err != nil {
			return err
		}
		if err := b.write(ctx, st.Label, "", func(w *layer.Writer) error { return o.mkdirs(w, name, who) }); err != nil {
			return err
		}
	}
	b.config.cwd = dir
	return nil
}

func (b *build) absolute(p string) string {
	if !path.IsAbs(p) {
		p = path.Join("/", b.config.cwd, p)
	}
	return path.Clean(p)
}

// write makes a layer and puts it on top. With a key, it is found again by a later build.
func (b *build) write(ctx context.Context, note, key string, fill func(*layer.Writer) error) error {
	in, err := b.s.layers.Write(ctx, layer.WriteOptions{}, fill)
	if err != nil {
		return err
	}
	if key != "" {
		if err := b.remember(key, in); err != nil {
			return err
		}
	}
	b.push(in, oneLine(note))
	return nil
}

// runStep runs a command over the layers so far.
func (b *build) runStep(ctx context.Context, st *Step) error {
	if (st.Script == "") == (len(st.Argv) == 0) {
		return errdefs.Userf(errdefs.InvalidArgument, "step RUN", "give a script or a program", "it has no command")
	}
	run := BuildRun{Argv: st.Argv, Env: b.env(st), Cwd: b.config.cwd, User: b.config.user}
	switch {
	case st.Script == "":
	case st.Login:
		run.Argv = []string{b.loginShell(), "-l", "-c", st.Script}
	case len(st.Shell) == 0:
		run.Argv = []string{"/bin/sh", "-c", st.Script}
	default:
		run.Argv = append(slices.Clone(st.Shell), st.Script)
	}
	if st.User != "" {
		var err error
		if run.User, err = expand(st.User, b.words(st)); err != nil {
			return err
		}
	}
	return b.runLayer(ctx, &run, st.Label, b.key("run", run.Argv, run.Env, run.Cwd, run.User), st.Force)
}

func (b *build) loginShell() string {
	view, err := layer.OpenView(b.infos)
	if err != nil {
		return "/bin/sh"
	}
	defer view.Close()
	if _, err := view.Stat("bin/bash"); err != nil {
		return "/bin/sh"
	}
	return "/bin/bash"
}

// runLayer makes a layer of what a command wrote, unless that is known by its key.
func (b *build) runLayer(ctx context.Context, run *BuildRun, label, key string, force bool) error {
	if in, ok := b.recall(key, forever); ok && !force {
		b.say("cached")
		b.push(in, oneLine(label))
		return nil
	}
	if b.s.opts.Builder == nil {
		return errdefs.Userf(errdefs.Unsupported, "template "+b.req.Name, "build it on a node that can run boxes", "commands need a runtime")
	}
	run.Root, run.Limits = b.root(key), b.req.Limits
	out := &lines{emit: b.say}
	run.Output = out
	var made layer.Info
	var collectErr error
	err := b.s.opts.Builder.RunInBox(ctx, *run, func(upper string) error {
		made, collectErr = b.s.layers.Write(ctx, layer.WriteOptions{Overlay: true}, func(w *layer.Writer) error { return w.AddDir(upper) })
		return collectErr
	})
	out.flush()
	if err == nil {
		err = b.remember(key, made)
	}
	if err != nil {
		return err
	}
	b.push(made, oneLine(label))
	return nil
}

// key names what a step gives: the layers below it and everything else that acts on it, variables that may be
// secrets among it.
func (b *build) key(kind string, parts ...any) string {
	all := [][]byte{[]byte(kind), fmt.Appendf(nil, "%q", b.digests())}
	for _, p := range parts {
		all = append(all, fmt.Appendf(nil, "%q", p))
	}
	return kind + ":" + b.s.key.Sum(all...)
}

func pathError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return errdefs.Userf(errdefs.InvalidArgument, "path "+name, "choose another path", "cannot be used: %w", err)
}
