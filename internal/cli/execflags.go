package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// execFlags say how a command runs; exec and run share them.
type execFlags struct {
	interactive bool
	terminal    bool
	timeout     time.Duration
	cwd         string
	script      string
	maxOutput   int64
	killOutput  bool
}

func (f *execFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.BoolVarP(&f.interactive, "interactive", "i", false, "pass standard input on (else the command reads its end at once)")
	fl.BoolVarP(&f.terminal, "tty", "T", false, "run on a terminal; implies -i")
	fl.DurationVar(&f.timeout, "timeout", 0, "kill the whole process tree after this time, such as 30s")
	fl.StringVarP(&f.cwd, "workdir", "w", "", "working directory in the box")
	fl.StringVarP(&f.script, "script", "c", "", "run this text in a shell instead of a command")
	fl.Int64Var(&f.maxOutput, "max-output", 0, "bytes kept of each stream (default 1 MiB)")
	fl.BoolVar(&f.killOutput, "kill-on-output-limit", false, "end the command when a stream passes --max-output")
	fl.SetInterspersed(false)
}

// command checks that there is one thing to run.
func (f *execFlags) command(args []string) (dsec.Command, error) {
	c := dsec.Command{Argv: args, Script: f.script, Cwd: f.cwd, Timeout: f.timeout, MaxOutput: f.maxOutput, KillOnOutputLimit: f.killOutput}
	if f.timeout < 0 || f.timeout > 0 && f.timeout < time.Millisecond {
		return c, usagef("--timeout %v: want 1ms or more", f.timeout)
	}
	if (len(args) == 0) == (f.script == "") {
		return c, usagef("want a command after --, or --script, and not both")
	}
	return c, nil
}

// execute runs a command in a box and gives its exit code as an error, nil for 0.
func (e *Env) execute(ctx context.Context, box starter, c dsec.Command, f *execFlags) error {
	var r *dsecv1.Result
	var err error
	if f.terminal {
		r, err = e.onTerminal(ctx, box, c)
	} else {
		r, err = e.piped(ctx, box, c, f.interactive)
	}
	if err != nil {
		return err
	}
	return e.verdict(r)
}

func (e *Env) piped(ctx context.Context, box starter, c dsec.Command, interactive bool) (*dsecv1.Result, error) {
	rest := context.WithoutCancel(ctx) // Ctrl-C is passed on to the command, whose end is awaited
	c.StdinStream = interactive
	p, err := box.start(rest, c)
	if err != nil {
		return nil, err
	}
	if interactive {
		feed(rest, e.In, p)
	}
	if !e.JSON() {
		return follow(ctx, p, e.Out, e.Err)
	}
	stdout, stderr := newCapture(c.MaxOutput), newCapture(c.MaxOutput)
	r, err := follow(ctx, p, stdout, stderr)
	if r != nil {
		r.Stdout, r.Stderr = stdout.output(), stderr.output()
	}
	return r, err
}

// verdict shows how a command ended, where it did not simply exit, and turns its
// end into an exit code.
func (e *Env) verdict(r *dsecv1.Result) error {
	if e.JSON() {
		if err := printMessage(e.Out, withText(r)); err != nil {
			return err
		}
	}
	if err := dsec.FromWire(r.GetError()); err != nil {
		return err
	}
	note, code := ending(r)
	if note != "" && !e.JSON() {
		writeAll(e.Err, "dsec: "+note+"\n")
	}
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

// ending explains a result and gives its exit code.
func ending(r *dsecv1.Result) (note string, code int) {
	code = int(r.GetExitCode())
	if s := r.GetSignal(); s != "" {
		code = 128 + int(unix.SignalNum(s))
		note = "the command was ended by " + s
	}
	switch {
	case r.GetTimedOut():
		return fmt.Sprintf("the command was killed by its time-out after %s", duration(time.Duration(r.GetWallMs()*float64(time.Millisecond)))), exitTimedOut
	case r.GetOom():
		note = "out of memory: the box's mem_limit was reached"
	case r.GetLimit() != "":
		note = "the box's limit of " + r.GetLimit() + " was reached"
	}
	return note, code
}

// withText gives the result with its output as text.
func withText(r *dsecv1.Result) *dsecv1.Result {
	r = proto.CloneOf(r)
	for _, o := range []*dsecv1.Output{r.GetStdout(), r.GetStderr()} {
		if o != nil {
			o.Text, o.Head, o.Tail = toText(dsec.Output(o)), nil, nil
		}
	}
	return r
}
