package envd

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/gen/process"
	"github.com/dsec-platform/dsec/gen/process/processconnect"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// processes serves process.Process.
type processes struct{ *Handler }

// keptOutput is what a process may be ahead of those who follow it; then it waits, as at a pipe.
const keptOutput = 256 << 10

// Start starts a process and follows it. Its deadline is the call's: then the process is killed
// with all that it started.
func (p *processes) Start(ctx context.Context, q *process.StartRequest, out processconnect.ProcessStartServerStream) error {
	s := sandboxOf(ctx)
	req, err := command(ctx, q, &s)
	if err != nil {
		return err
	}
	g, release, err := s.guest(ctx)
	if err != nil {
		return err
	}
	defer release()
	stream, err := g.Start(ctx, *req)
	if err != nil {
		return startError(err)
	}
	f := p.follow(ctx, stream, req.PTY, func(ev *process.ProcessEvent) error {
		return out.Send(&process.StartResponse{Event: ev})
	})
	f.begun = func(pid int) { p.known.add(s.ID, pid, req.OpID) }
	return f.run(ctx)
}

// Connect follows a process from now on.
func (p *processes) Connect(ctx context.Context, q *process.ConnectRequest, out processconnect.ProcessConnectServerStream) error {
	s := sandboxOf(ctx)
	g, release, err := s.guest(ctx)
	if err != nil {
		return err
	}
	defer release()
	proc, err := p.find(ctx, g, &s, q.GetProcess())
	if err != nil {
		return err
	}
	stream, err := g.Attach(ctx, proc.info.OpID, guestproto.FromNow, guestproto.FromNow)
	if err != nil {
		return err
	}
	return p.follow(ctx, stream, proc.info.PTY, func(ev *process.ProcessEvent) error {
		return out.Send(&process.ConnectResponse{Event: ev})
	}).run(ctx)
}

// List gives what runs: also what was started by the product's own API.
func (p *processes) List(ctx context.Context, _ *process.ListRequest) (*process.ListResponse, error) {
	s := sandboxOf(ctx)
	g, release, err := s.guest(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	ops, err := g.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &process.ListResponse{}
	for i := range ops {
		if op := &ops[i]; op.Running && op.Pid > 0 {
			out.Processes = append(out.Processes, processInfo(op))
		}
	}
	return out, nil
}

// command checks a request and gives the guest's.
func command(ctx context.Context, q *process.StartRequest, s *Sandbox) (*guestproto.ExecRequest, error) {
	c := q.GetProcess()
	user, err := userOf(ctx)
	if err != nil {
		return nil, err
	}
	req := &guestproto.ExecRequest{
		OpID: "e2b-" + rand.Text(), Argv: append([]string{c.GetCmd()}, c.GetArgs()...), User: user,
		MaxOutput: keptOutput, HoldOutput: true, StdinMode: guestproto.StdinStream,
		Env: slices.Clone(s.Env),
	}
	switch {
	case c.GetCmd() == "":
		return nil, bad("process.cmd", "name a program", "it is empty")
	case len(q.GetTag()) > maxTag || strings.IndexByte(q.GetTag(), 0) >= 0:
		return nil, bad("tag", "use at most 256 bytes without NUL", "it has %d bytes", len(q.GetTag()))
	case q.GetPty() == nil && q.Stdin != nil && !q.GetStdin():
		req.StdinMode = guestproto.StdinNone
	}
	if err := checkEnv(c.GetEnvs()); err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(c.GetEnvs())) {
		req.Env = append(req.Env, k+"="+c.GetEnvs()[k])
	}
	size := 0
	for _, list := range [][]string{req.Argv, req.Env} {
		for _, v := range list {
			size += len(v) + 1
		}
	}
	if size > maxText {
		return nil, errdefs.Limitf(errdefs.TooLarge, "process", "put it into a file and run that", "it has %d bytes of arguments and environment, over %d", size, maxText)
	}
	if req.Cwd, err = directory(c.GetCwd(), s.Workdir); err != nil {
		return nil, err
	}
	if q.Pty != nil {
		req.PTY = true
		if req.Rows, req.Cols, err = ptySize(q.GetPty()); err != nil {
			return nil, err
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		req.TimeoutMs = max(min(time.Until(deadline), maxTimeout).Milliseconds(), 1)
	}
	req.Note = note(q)
	return req, nil
}

// directory is where a process starts.
func directory(cwd, workdir string) (string, error) {
	if cwd == "" {
		cwd = workdir
	}
	if err := checkPath("process.cwd", cwd); err != nil {
		return "", err
	}
	if cwd = orHome(cwd); cwd[0] != '/' && cwd[0] != '~' {
		cwd = "~/" + cwd
	}
	return cwd, nil
}

// startError tells a program or directory that is not there from a process that is not there.
func startError(err error) error {
	if e := errdefs.From(err); e.Reason == errdefs.NotFound && !strings.HasPrefix(e.Object, "user ") {
		return errdefs.Userf(errdefs.InvalidArgument, e.Object, e.Remedy, "%s", e.Message)
	}
	return err
}

func ptySize(p *process.PTY) (rows, cols uint16, err error) {
	const most = 1<<16 - 1
	if p.GetSize().GetRows() > most || p.GetSize().GetCols() > most {
		return 0, 0, bad("pty.size", "use at most 65535 rows and columns", "it is %d by %d", p.GetSize().GetRows(), p.GetSize().GetCols())
	}
	return uint16(p.GetSize().GetRows()), uint16(p.GetSize().GetCols()), nil
}
