package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	"github.com/dsec-platform/dsec/internal/template"
)

// Builder runs a template's init steps in boxes of the native runtime, under
// the rules of every box: no network, the build profile, limits.
type Builder struct {
	Runtime runtime.Runtime
	// Lend gives a box its id and its promise of memory: on a node, whose patrol would remove a
	// box that it does not know. nil where there is no node.
	Lend func(ctx context.Context, l runtime.Limits) (id string, release func(), err error)
	// Memory is the most that a box gets; 0: as much as its build asks for.
	Memory int64
}

var _ template.Builder = Builder{}

// Limits of a step.
var buildLimits = runtime.Limits{Memory: 2 << 30, Pids: 4096}

const buildDisk = 16 << 30

// RunInBox implements template.Builder.
func (b Builder) RunInBox(ctx context.Context, run template.BuildRun, collect func(string) error) error {
	return b.inBox(ctx, run, func(box runtime.Box, guest guestclient.API) error {
		if err := stepIn(ctx, guest, run); err != nil {
			return err
		}
		freezer, ok := box.(native.Freezer)
		if !ok {
			return errdefs.Userf(errdefs.Unsupported, "runtime "+b.Runtime.Name(), "use the native runtime", "its boxes cannot become layers")
		}
		return freezer.FreezeUpper(ctx, collect)
	})
}

// StartInBox implements template.Builder.
func (b Builder) StartInBox(ctx context.Context, run template.BuildRun, s template.StartCommand) error {
	return b.inBox(ctx, run, func(_ runtime.Box, guest guestclient.API) error {
		return node.RunStart(ctx, guest, node.Start{Command: s.Command, Ready: s.Ready, User: s.User, Cwd: s.Cwd}, run.Output)
	})
}

// inBox makes a box for use, which it destroys afterwards.
func (b Builder) inBox(ctx context.Context, run template.BuildRun, use func(runtime.Box, guestclient.API) error) (err error) {
	limits := buildLimits
	limits.CPU = run.Limits.CPU
	if limits.Memory = max(limits.Memory, run.Limits.Memory); b.Memory > 0 {
		limits.Memory = min(limits.Memory, b.Memory)
	}
	id := "build-" + strings.ToLower(rand.Text()[:16])
	if b.Lend != nil {
		var release func()
		if id, release, err = b.Lend(ctx, limits); err != nil {
			return err
		}
		defer release()
	}
	box, err := b.Runtime.Create(ctx, runtime.Config{
		ID: id, Root: run.Root, RootWritable: true,
		Claim: runtime.Claim{
			Limits: limits, Hostname: "build", User: "root", Store: "disk", StoreSize: buildDisk, TmpSize: 1 << 30,
			Seccomp: runtime.Seccomp{Profile: "build"}, NewPrivileges: true, Env: run.Env,
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Destroy(context.WithoutCancel(ctx))) }()
	guest, err := guestOf(ctx, box)
	if err != nil {
		return err
	}
	defer guest.Close()
	return use(box, guest)
}

// guestOf connects to the guest of a box that no node looks after.
func guestOf(ctx context.Context, box runtime.Box) (*guestclient.Client, error) {
	conn, err := box.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return guestclient.New(ctx, conn)
}

// outcome says how a command failed.
func outcome(r *guestproto.Result) string {
	switch {
	case r.OOM:
		return "it ran out of memory"
	case r.Signal != "":
		return "ended by " + r.Signal
	}
	return "ended with exit code " + strconv.Itoa(r.ExitCode)
}

func stepIn(ctx context.Context, guest guestclient.API, run template.BuildRun) error {
	st, err := guest.Start(ctx, guestproto.ExecRequest{OpID: "build", Argv: run.Argv, Cwd: run.Cwd, User: cmp.Or(run.User, "root")})
	if err != nil {
		return err
	}
	defer st.Close()
	for {
		ev, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "command", "its stream ended early")
		}
		if err != nil {
			return err
		}
		switch ev.Kind {
		case guestproto.EventOutput:
			if run.Output != nil {
				_, _ = run.Output.Write(ev.Data)
			}
		case guestproto.EventExit:
			r := ev.Result
			if r.Error != nil {
				return errdefs.Userf(errdefs.InvalidArgument, "command", r.Error.Remedy, "%s", r.Error.Message)
			}
			if r.ExitCode != 0 {
				return errdefs.Userf(errdefs.InvalidArgument, "command", "see its output above", "%s", outcome(r))
			}
			return nil
		}
	}
}
