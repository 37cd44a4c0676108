package envd

import (
	"context"
	"errors"
	"io"

	"github.com/dsec-platform/dsec/gen/process"
	"github.com/dsec-platform/dsec/gen/process/processconnect"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// SendInput feeds a process once.
func (p *processes) SendInput(ctx context.Context, q *process.SendInputRequest) (*process.SendInputResponse, error) {
	return &process.SendInputResponse{}, p.with(ctx, q.GetProcess(), func(g guestAPI, proc *found) error {
		return proc.feed(ctx, g, q.GetInput())
	})
}

// StreamInput feeds a process until the client's end.
func (p *processes) StreamInput(ctx context.Context, in processconnect.ProcessStreamInputServerStream) (*process.StreamInputResponse, error) {
	first, err := in.Receive()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if first.GetStart() == nil {
		return nil, bad("stream", "say start with the process first", "its first message names no process")
	}
	return &process.StreamInputResponse{}, p.with(ctx, first.GetStart().GetProcess(), func(g guestAPI, proc *found) error {
		for {
			m, err := in.Receive()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case m.GetData() != nil:
				if err := proc.feed(ctx, g, m.GetData().GetInput()); err != nil {
					return err
				}
			case m.GetKeepalive() == nil:
				return bad("stream", "send data after start", "it has a message without data")
			}
		}
	})
}

// CloseStdin ends a process's input. A terminal has no end of input but what Ctrl-D is taken for.
func (p *processes) CloseStdin(ctx context.Context, q *process.CloseStdinRequest) (*process.CloseStdinResponse, error) {
	return &process.CloseStdinResponse{}, p.with(ctx, q.GetProcess(), func(g guestAPI, proc *found) error {
		if proc.info.PTY {
			return proc.refuse("send Ctrl-D (byte 4) as pty input", "it has a terminal, which cannot be closed")
		}
		err := proc.write(ctx, g, nil, true)
		if errors.Is(err, errdefs.ErrConflict) { // it never was open
			return nil
		}
		return err
	})
}

// SendSignal signals a process's group.
func (p *processes) SendSignal(ctx context.Context, q *process.SendSignalRequest) (*process.SendSignalResponse, error) {
	name := "SIGTERM"
	switch q.GetSignal() {
	case process.Signal_SIGNAL_SIGTERM:
	case process.Signal_SIGNAL_SIGKILL:
		name = "SIGKILL"
	default:
		return nil, errdefs.Userf(errdefs.Unsupported, "signal "+e2b.Clip(q.GetSignal().String()), "send SIGNAL_SIGTERM or SIGNAL_SIGKILL", "it cannot be sent")
	}
	return &process.SendSignalResponse{}, p.with(ctx, q.GetProcess(), func(g guestAPI, proc *found) error {
		err := g.Signal(ctx, proc.info.OpID, name, false)
		if errors.Is(err, errdefs.ErrConflict) { // it has ended meanwhile
			return errdefs.Userf(errdefs.NotFound, "process", "list the processes", "it has ended")
		}
		return err
	})
}

// Update changes a terminal's size.
func (p *processes) Update(ctx context.Context, q *process.UpdateRequest) (*process.UpdateResponse, error) {
	if q.GetPty().GetSize() == nil {
		return nil, bad("pty", "give pty.size", "there is nothing to change")
	}
	rows, cols, err := ptySize(q.GetPty())
	if err != nil {
		return nil, err
	}
	return &process.UpdateResponse{}, p.with(ctx, q.GetProcess(), func(g guestAPI, proc *found) error {
		return g.Resize(ctx, proc.info.OpID, rows, cols)
	})
}

// with finds a process and does something to it.
func (p *processes) with(ctx context.Context, sel *process.ProcessSelector, do func(guestAPI, *found) error) error {
	s := sandboxOf(ctx)
	g, release, err := s.guest(ctx)
	if err != nil {
		return err
	}
	defer release()
	proc, err := p.find(ctx, g, &s, sel)
	if err != nil {
		return err
	}
	return do(g, proc)
}

// feed writes input where the process reads it.
func (f *found) feed(ctx context.Context, g guestAPI, in *process.ProcessInput) error {
	switch in.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		if f.info.PTY {
			return f.refuse("send it as pty input", "it reads from a terminal and not from standard input")
		}
		return f.write(ctx, g, in.GetStdin(), false)
	case *process.ProcessInput_Pty:
		if !f.info.PTY {
			return f.refuse("send it as stdin", "it has no terminal")
		}
		return f.write(ctx, g, in.GetPty(), false)
	}
	return bad("input", "give stdin or pty", "there is none")
}

func (f *found) refuse(remedy, why string) error {
	return errdefs.Userf(errdefs.Conflict, "process", remedy, "%s", why)
}

// write appends to the input; writes of several callers come one after the other, each whole.
func (f *found) write(ctx context.Context, g guestAPI, data []byte, eof bool) (err error) {
	var at int64
	select {
	case at = <-f.input:
	case <-ctx.Done():
		return ctx.Err()
	}
	next := int64(-1)
	defer func() { f.input <- next }()
	if at < 0 {
		// Nothing at the beginning is taken already: the answer says where the input ends.
		if at, err = g.WriteStdin(ctx, f.info.OpID, 0, nil, false); err != nil {
			return err
		}
	}
	n, err := g.WriteStdin(ctx, f.info.OpID, at, data, eof)
	if err == nil {
		next = n
	}
	return err
}
