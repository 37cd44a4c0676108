package cli

import (
	"context"
	"io"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// process is a command that runs in a box, over the API or in this process.
type process interface {
	// wait copies the output until the command ends.
	wait(stdout, stderr io.Writer) (*dsecv1.Result, error)
	stdin(ctx context.Context) io.WriteCloser
	resize(ctx context.Context, rows, cols uint16) error
	signal(ctx context.Context, name string, tree bool) error
}

// starter starts commands in one box.
type starter interface {
	start(ctx context.Context, c dsec.Command) (process, error)
}

// remoteBox is a session of a server.
type remoteBox struct{ s *dsec.Session }

func (b remoteBox) start(ctx context.Context, c dsec.Command) (process, error) {
	p, err := b.s.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	return remoteProcess{p}, nil
}

type remoteProcess struct{ *dsec.Process }

func (p remoteProcess) wait(o, e io.Writer) (*dsecv1.Result, error) { return p.Wait(o, e) }
func (p remoteProcess) stdin(ctx context.Context) io.WriteCloser    { return p.Stdin(ctx) }
func (p remoteProcess) resize(ctx context.Context, r, c uint16) error {
	return p.Resize(ctx, dsec.Size{Rows: r, Cols: c})
}
func (p remoteProcess) signal(ctx context.Context, name string, tree bool) error {
	return p.Signal(ctx, name, tree)
}

// grace is how long an interrupted command may take to end by itself.
const grace = 3 * time.Second

// follow shows a command's output until it ends. When ctx ends (Ctrl-C) the
// command gets SIGINT, and SIGKILL for its whole tree after a grace; its end is
// still awaited. The process must have been started with a context that
// outlives ctx.
func follow(ctx context.Context, p process, stdout, stderr io.Writer) (*dsecv1.Result, error) {
	rest := context.WithoutCancel(ctx)
	over := make(chan struct{})
	defer close(over)
	stop := context.AfterFunc(ctx, func() {
		call, cancel := context.WithTimeout(rest, grace)
		defer cancel()
		if p.signal(call, "SIGINT", false) != nil {
			return
		}
		select {
		case <-over:
		case <-time.After(grace):
			kill, cancel := context.WithTimeout(rest, grace)
			defer cancel()
			_ = p.signal(kill, "SIGKILL", true) // an op that has ended has nothing to kill
		}
	})
	defer stop()
	return p.wait(stdout, stderr)
}

// feed copies standard input to the command until either ends.
func feed(ctx context.Context, in io.Reader, p process) {
	w := p.stdin(ctx)
	go func() {
		// The command may end, or close its input, before all of it is read.
		_, _ = io.Copy(w, in)
		_ = w.Close()
	}()
}
