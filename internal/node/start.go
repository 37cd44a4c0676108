package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// Start is what a box runs before its session is RUNNING. Command is started by the shell and goes
// on in the background, as the op dsec-start; Ready is repeated until it ends with 0. A Command that
// ends with an error before that ends the wait, whatever Ready does.
type Start struct {
	Command, Ready string
	User, Cwd      string
}

const (
	startOp = guestproto.OpID("dsec-start")
	// startLimit is how long a box may take to be ready.
	startLimit = 2 * time.Minute
	// A ready command is asked again after a pause that grows from readyMin to readyMax.
	readyMin, readyMax = 20 * time.Millisecond, 500 * time.Millisecond
)

// RunStart runs s in the box of g and returns when it is ready. An error of class user says what went
// wrong, with the end of the command's output. What both write goes to output, if that is not nil.
func RunStart(ctx context.Context, g guestclient.API, s Start, output io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if output == nil {
		output = io.Discard
	}
	output = &sharedWriter{w: output}
	ctx, giveUp := context.WithCancelCause(ctx) // with what became of the start command
	defer giveUp(nil)
	if s.Command != "" {
		began, err := g.Start(ctx, guestproto.ExecRequest{OpID: startOp, Script: s.Command, User: s.User, Cwd: s.Cwd, Background: true})
		if err != nil {
			return err
		}
		var following sync.WaitGroup
		defer following.Wait() // nothing is written after the return
		defer began.Close()
		following.Go(func() {
			if err := followStart(began, output); err != nil {
				giveUp(err)
			}
		})
	}
	if s.Ready == "" {
		return nil
	}
	pause := readyMin
	for n := 0; ; n++ {
		r, err := g.Run(ctx, guestproto.ExecRequest{OpID: guestproto.OpID(fmt.Sprintf("dsec-ready-%d", n)), Script: s.Ready, User: s.User, Cwd: s.Cwd, MaxOutput: 4096})
		if r != nil {
			_, _ = output.Write(append(r.Stdout.Head, r.Stderr.Head...))
		}
		switch {
		case err == nil && r.ExitCode == 0:
			return nil
		case ctx.Err() != nil:
			return gaveUp(ctx, s.Ready)
		case err != nil:
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return gaveUp(ctx, s.Ready)
		}
		pause = min(2*pause, readyMax)
	}
}

// gaveUp says why a box did not become ready before ctx ended.
func gaveUp(ctx context.Context, ready string) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return errdefs.Userf(errdefs.TimedOut, "ready command "+clip(ready), "check it in a session of the template it is built on", "did not end with 0 within %v", startLimit)
	}
	return errdefs.From(context.Cause(ctx))
}

// sharedWriter is a writer for several goroutines.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// followStart reads the command's output until it ends, and says so if that was a failure.
func followStart(st guestclient.ExecStream, output io.Writer) error {
	var tail []byte
	for {
		ev, err := st.Recv()
		if err != nil {
			return nil // detached: the box is ready, or the call has ended
		}
		switch ev.Kind {
		case guestproto.EventOutput:
			_, _ = output.Write(ev.Data)
			if tail = append(tail, ev.Data...); len(tail) > 2048 {
				tail = append(tail[:0], tail[len(tail)-1024:]...)
			}
		case guestproto.EventExit:
			r := ev.Result
			if r.Error == nil && r.ExitCode == 0 {
				return nil
			}
			why := fmt.Sprintf("ended with %d %s", r.ExitCode, r.Signal)
			if r.Error != nil {
				why = r.Error.Message
			}
			return errdefs.Userf(errdefs.InvalidArgument, "start command", "check it in a session of the template it is built on", "%s before the box was ready: %s",
				strings.TrimSpace(why), strings.ToValidUTF8(strings.TrimSpace(string(tail)), "\uFFFD"))
		}
	}
}

func clip(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:77], "") + "…"
	}
	return s
}

// start runs the template's start command, if there is one, before anybody else sees the box.
func (n *Node) start(ctx context.Context, s *session, req *CreateRequest, bound *Bound) error {
	if req.Start == (Start{}) {
		return nil
	}
	return n.withGuest(ctx, s, bound, "start", func(g guestclient.API) error { return RunStart(ctx, g, req.Start, nil) })
}
