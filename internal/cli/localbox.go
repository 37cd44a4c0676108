package cli

import (
	"context"
	"errors"
	"io"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// localBox is a box of this process.
type localBox struct{ guest guestclient.API }

func (b localBox) start(ctx context.Context, c dsec.Command) (process, error) {
	r := guestproto.ExecRequest{
		OpID: c.OpID, Argv: c.Argv, Script: c.Script, Shell: c.Shell, ShellSession: c.ShellSession,
		Cwd: c.Cwd, User: c.User, Stdin: c.Stdin, TimeoutMs: c.Timeout.Milliseconds(),
		MaxOutput: c.MaxOutput, KillOnOutputLimit: c.KillOnOutputLimit,
	}
	if r.OpID == "" {
		r.OpID = "cli"
	}
	for k, v := range c.Env {
		r.Env = append(r.Env, k+"="+v)
	}
	if len(c.Stdin) > 0 {
		r.StdinMode = guestproto.StdinData
	}
	if c.StdinStream {
		r.StdinMode = guestproto.StdinStream
	}
	if c.PTY != nil {
		r.PTY, r.Rows, r.Cols = true, c.PTY.Rows, c.PTY.Cols
	}
	st, err := b.guest.Start(ctx, r)
	if err != nil {
		return nil, err
	}
	return &localProcess{b.guest, st, r.OpID}, nil
}

type localProcess struct {
	guest guestclient.API
	st    guestclient.ExecStream
	op    string
}

func (p *localProcess) wait(stdout, stderr io.Writer) (*dsecv1.Result, error) {
	defer p.st.Close()
	for {
		ev, err := p.st.Recv()
		if errors.Is(err, io.EOF) {
			return nil, errdefs.Infraf(errdefs.ScopeBox, errdefs.Internal, "command", "the stream ended before the command did")
		}
		if err != nil {
			return nil, err
		}
		switch ev.Kind {
		case guestproto.EventExit:
			return wireResult(ev.Result), nil
		case guestproto.EventOutput:
			w := stdout
			if ev.Stream == guestproto.Stderr {
				w = stderr
			}
			if _, err := w.Write(ev.Data); err != nil {
				return nil, err
			}
		}
	}
}

func (p *localProcess) resize(ctx context.Context, rows, cols uint16) error {
	return p.guest.Resize(ctx, p.op, rows, cols)
}

func (p *localProcess) signal(ctx context.Context, name string, tree bool) error {
	return p.guest.Signal(ctx, p.op, name, tree)
}

func (p *localProcess) stdin(ctx context.Context) io.WriteCloser { return &localStdin{p, ctx, 0} }

type localStdin struct {
	p   *localProcess
	ctx context.Context
	at  int64
}

func (w *localStdin) Write(b []byte) (int, error) {
	sent := 0
	for sent < len(b) {
		next, err := w.p.guest.WriteStdin(w.ctx, w.p.op, w.at, b[sent:min(sent+1<<16, len(b))], false)
		if err != nil {
			return sent, err
		}
		n := int(next - w.at)
		if n <= 0 || n > len(b)-sent {
			return sent, io.ErrShortWrite
		}
		sent, w.at = sent+n, next
	}
	return sent, nil
}

func (w *localStdin) Close() error {
	_, err := w.p.guest.WriteStdin(w.ctx, w.p.op, w.at, nil, true)
	return err
}

// wireResult gives a result as the API would.
func wireResult(r *guestproto.Result) *dsecv1.Result {
	out := func(o guestproto.Output) *dsecv1.Output {
		return &dsecv1.Output{Head: o.Head, Tail: o.Tail, Dropped: o.Dropped, Total: o.Total}
	}
	w := &dsecv1.Result{
		OpId: r.OpID, ExitCode: int32(r.ExitCode), Signal: r.Signal, TimedOut: r.TimedOut, Oom: r.OOM, Limit: string(r.Limit),
		WallMs: r.WallMs, UserMs: r.UserMs, SysMs: r.SysMs, PeakMemory: r.PeakMemory, ReadBytes: r.ReadBytes, WriteBytes: r.WriteBytes,
		Stdout: out(r.Stdout), Stderr: out(r.Stderr), Survivors: int32(r.Survivors),
	}
	if e := r.Error; e != nil {
		w.Error = &dsecv1.Error{Class: e.Class, Reason: e.Reason, Object: e.Object, Message: e.Message, Remedy: e.Remedy}
	}
	return w
}
