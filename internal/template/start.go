package template

import (
	"context"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/layer"
)

// StartCommand is what every box of a template runs before its session is RUNNING: Command goes
// on in the background, Ready is repeated until it ends with 0. Both are run by the shell, as the
// template's user in its directory. Either may be empty.
type StartCommand struct {
	Command string `json:"command,omitempty"`
	Ready   string `json:"ready,omitempty"`
	User    string `json:"user,omitempty"`
	Cwd     string `json:"cwd,omitempty"`
}

// IsZero tells that nothing is run.
func (s StartCommand) IsZero() bool { return s.Command == "" && s.Ready == "" }

// start tries the start command out in a box. What that writes is not kept: every box runs it again.
func (b *build) start(ctx context.Context) error {
	if !b.req.Start.IsZero() {
		b.started = StartCommand{Command: b.req.Start.Command, Ready: b.req.Start.Ready, User: b.config.user, Cwd: b.config.cwd}
	}
	if b.req.Start.IsZero() || b.s.opts.Builder == nil { // a base's own was tried when it was built
		return nil
	}
	b.at = Progress{Stage: "start", Step: len(b.req.Steps) + 1}
	b.say("starting: " + oneLine(b.started.Command+" "+b.started.Ready))
	out := &lines{emit: b.say}
	run := BuildRun{Root: b.root(b.key("start")), Env: b.config.env, User: b.config.user, Cwd: b.config.cwd, Limits: b.req.Limits, Output: out}
	err := b.s.opts.Builder.StartInBox(ctx, run, b.started)
	out.flush()
	if err != nil {
		return failedStep(ctx, "start", err)
	}
	return nil
}

// template begins with the layers and defaults of another template.
func (b *build) template(ctx context.Context) error {
	ref := b.req.Source.Ref
	m, err := b.s.find(ref)
	if err != nil {
		return err
	}
	if m.HostView {
		return errdefs.Userf(errdefs.Unsupported, "template "+ref, "build from an imported template or an image", "it is a view of the host and nothing can be built on it")
	}
	b.req.Source.Ref = m.Name + "@" + m.Version
	b.progress(Progress{Stage: "template", Message: b.req.Source.Ref})
	b.config = imageConfig{env: m.Env, cwd: m.Cwd, user: m.User}
	b.base, b.started = m.Spec, m.Start
	b.layers = append([]LayerRef(nil), m.Layers...)
	b.infos = make([]layer.Info, len(m.Layers))
	for i, l := range m.Layers {
		if b.infos[i], err = b.s.layers.Get(l.Digest); err != nil {
			return err
		}
	}
	return ctx.Err()
}
