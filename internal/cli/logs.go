package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newLogs(e *Env) *cobra.Command {
	var followOp bool
	cmd := &cobra.Command{
		Use:   "logs [flags] SESSION [OP]",
		Short: "Show the kept output of an operation",
		Long: `Show what is kept of an operation's output, on standard output and standard error
as it was written. With -f go on until it ends. Without OP, list the operations.`,
		Example: "  dsec logs $id\n  dsec logs $id op_123\n  dsec logs -f $id op_123",
		Args:    nArgs(1, 2, "SESSION, or SESSION and OP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if followOp && len(args) == 1 {
				return usagef("-f needs an OP")
			}
			client, err := e.Client()
			if err != nil {
				return err
			}
			s := client.Session(args[0])
			if len(args) == 1 {
				return e.listOps(cmd.Context(), s)
			}
			return e.logs(cmd.Context(), s, args[1], followOp)
		},
	}
	cmd.Flags().BoolVarP(&followOp, "follow", "f", false, "go on until the operation ends")
	return cmd
}

func (e *Env) listOps(ctx context.Context, s *dsec.Session) error {
	ops, err := s.Ops(ctx)
	if err != nil {
		return err
	}
	if e.JSON() {
		return printMessages(e.Out, ops)
	}
	table(e.Out, opRows(ops, time.Now()))
	return nil
}

func opRows(ops []*dsec.Operation, now time.Time) [][]string {
	rows := [][]string{{"OPERATION", "STATE", "AGE", "WALL", "USER", "COMMAND"}}
	for _, o := range ops {
		state, wall := "running", ""
		if r := o.GetResult(); !o.GetRunning() {
			_, code := ending(r)
			switch state = fmt.Sprintf("exit %d", code); {
			case r.GetTimedOut():
				state = "timed out"
			case r.GetOom():
				state = "out of memory"
			case r.GetSignal() != "":
				state = r.GetSignal()
			case r.GetExitCode() < 0:
				state = "not started"
			}
			wall = duration(time.Duration(r.GetWallMs() * float64(time.Millisecond)))
			if n := o.GetSurvivors(); n > 0 {
				state += fmt.Sprintf(", %d left", n)
			}
		}
		command := strings.Join(o.GetArgv(), " ")
		if r := []rune(command); len(r) > 60 {
			command = string(r[:59]) + "…"
		}
		rows = append(rows, []string{o.GetOpId(), state, age(o.GetStarted(), now), wall, o.GetUser(), command})
	}
	return rows
}

// quietTime is how long nothing must come of a running operation until logs without
// -f takes it that all is shown.
const quietTime = 300 * time.Millisecond

func (e *Env) logs(ctx context.Context, s *dsec.Session, op string, followOp bool) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if e.JSON() {
		o, err := s.Op(ctx, op, followOp)
		if err != nil {
			return err
		}
		if o.GetResult() != nil && !followOp { // ended: ask again, for its output
			if o, err = s.Op(ctx, op, true); err != nil {
				return err
			}
		}
		if o.Result != nil {
			o.Result = withText(o.Result)
		}
		return printMessage(e.Out, o)
	}
	p, err := s.Attach(ctx, op, 0, 0)
	if err != nil {
		return err
	}
	defer p.Close()
	// Without -f the call ends when nothing comes for a while: a running
	// operation's stream has no mark for "this is all so far".
	quiet := time.AfterFunc(quietTime, cancel)
	defer quiet.Stop()
	for {
		if followOp {
			quiet.Stop()
		} else {
			quiet.Reset(quietTime)
		}
		ev, err := p.Recv()
		if errors.Is(err, io.EOF) || err != nil && !followOp && outer.Err() == nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if e.showEvent(ev) {
			return nil
		}
	}
}

// showEvent writes an event and tells whether it was the last.
func (e *Env) showEvent(ev *dsec.Event) (last bool) {
	switch x := ev.GetEvent().(type) {
	case *dsecv1.ExecEvent_Output:
		w := e.Out
		if x.Output.GetStream() == dsecv1.Stream_STREAM_STDERR {
			w = e.Err
		}
		_, _ = w.Write(x.Output.GetData())
	case *dsecv1.ExecEvent_Gap:
		writeAll(e.Err, fmt.Sprintf("dsec: %d bytes are not kept any more\n", x.Gap.GetDropped()))
	case *dsecv1.ExecEvent_Exit:
		return true
	}
	return false
}
