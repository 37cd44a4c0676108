// Package cli is the command line of DSec: one file a subcommand, all of them
// clients of the public API but for run (which can make a box in its own
// process), doctor and spec. What needs the server's packages is added by the
// composition root through Hooks, so that this package links none of them.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/spec"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// Hooks are what the composition root adds. Every field may be nil: the command
// that needs it then says that this build lacks it.
type Hooks struct {
	// Commands are further subcommands, such as up and bench. They are made when
	// the command line is built, so they must be cheap to construct.
	Commands []func(*Env) *cobra.Command
	// Local makes a box in this process, without a server, and gives its guest. done
	// destroys the box and returns when nothing of it is left.
	Local func(ctx context.Context, o LocalOptions) (guest guestclient.API, done func() error, err error)
	// Templates serves the template store of a data directory from this process, for
	// machines where no server runs; done ends that.
	Templates func(dataDir string) (c *dsec.Client, done func() error, err error)
	// NeverGranted are the system calls that no allow_extra gives, for the linter.
	NeverGranted func() map[string]string
}

// LocalOptions of a box without a server.
type LocalOptions struct {
	DataDir  string
	Template string       // "" is base
	Spec     spec.Sandbox // overrides of the template's
	Env      map[string]string
	Secrets  map[string]string
	Code     []byte // a tar for CodeDir; nil for none
	CodeDir  string
}

// Exit codes of dsec itself. run, exec and shell exit with the command's own
// code (128 + n when signal n ended it) unless dsec fails before or beside it.
const (
	exitFailed      = 1   // class user, limit or policy, of commands that run nothing in a box
	exitUsage       = 2   // the command line is wrong
	exitTimedOut    = 124 // the command passed --timeout and was killed
	exitPlatform    = 125 // class infrastructure: the platform failed
	exitNotRun      = 126 // run, exec, shell: refused (class user, limit or policy)
	exitNoProgram   = 127 // run, exec, shell: no such program
	exitInterrupted = 130 // Ctrl-C
)

// Main runs the command line and gives the exit code. It owns the signals: the
// first SIGINT or SIGTERM ends the command's context, so that it cleans up; the
// second ends the process.
func Main(args []string, h Hooks) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	env := &Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, hooks: h}
	return env.run(ctx, args)
}

// run is Main without the process's own parts.
func (e *Env) run(ctx context.Context, args []string) int {
	root := e.root()
	root.SetArgs(args)
	root.SetIn(e.In)
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	err := root.ExecuteContext(ctx)
	e.close()
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	e.report(err)
	return e.code(err)
}

// exitCode ends dsec with a code and no message: the command in the box has
// said what there is to say.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is a wrong command line.
type usageError struct{ err error }

func (u usageError) Error() string { return u.err.Error() }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

const rootLong = `dsec makes isolated, stateful boxes in milliseconds and runs commands in them.

Without a server:   dsec run -- python3 -c 'print(1)'
With one:           dsec up --data-dir /var/lib/dsec &
                    id=$(dsec create)
                    dsec exec $id -- python3 -c 'print(1)'
                    dsec stop $id

The server is named by --url or DSEC_URL (with DSEC_API_KEY); else it is the
socket dsec.sock in the data directory (--data-dir or DSEC_DATA_DIR).

-o json prints one JSON value: a list, also of one, where a command is about any
number of things (create, ps, inspect, stop, spec lint, template ls, …), an
object where it is about one (exec, version, template show, …). What comes one after
the other (net log, bench) is one object a line.

Exit codes: 0 success; 1 failed (class user, limit or policy); 2 wrong usage;
125 the platform failed (class infrastructure). run, exec and shell give the
command's own code, 128+n when signal n ended it, 124 on a time-out, 126 when it
was refused, 127 when there is no such program.`

func (e *Env) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "dsec",
		Short:         "Isolated, stateful boxes for agents, in milliseconds",
		Long:          rootLong,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{unknownCommand(cmd, args[0])}
			}
			return cmd.Help()
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = false
	root.SetFlagErrorFunc(flagError)
	e.globalFlags(root)
	for _, make := range []func(*Env) *cobra.Command{
		newRun, newCreate, newExec, newShell, newCp, newPs, newInspect, newLogs, newStop, newSuspend, newResume, newDeadline,
		newTemplate, newSpec, newDoctor, newRollout, newNet, newKey, newMCP, newVersion,
	} {
		root.AddCommand(make(e))
	}
	for _, make := range e.hooks.Commands {
		root.AddCommand(make(e))
	}
	e.complete(root)
	return root
}

// flagError says what a flag should have been: the name that an unknown one was probably meant to be, or where they all are.
func flagError(cmd *cobra.Command, err error) error {
	if strings.Contains(err.Error(), "missing unit in duration") {
		return usagef("%w (write it with its unit: 5s, 2m, 1h30m)", err)
	}
	name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !unknown && !strings.HasPrefix(err.Error(), "unknown shorthand flag") {
		return usageError{err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := nearestFlag(name, names); near != "" && unknown {
		return usagef("%w (did you mean --%s?)", err, near)
	}
	return usagef("%w (see `%s --help`)", err, cmd.CommandPath())
}

// nearestFlag gives the flag that differs from name by a slip, or else the only one that begins it or that it begins.
func nearestFlag(name string, names []string) string {
	if near := spec.Nearest(name, names); near != "" {
		return near
	}
	alike := slices.DeleteFunc(names, func(s string) bool {
		return len(s) < 3 || !strings.HasPrefix(s, name) && !strings.HasPrefix(name, s)
	})
	if name == "" || len(alike) != 1 {
		return ""
	}
	return alike[0]
}

func unknownCommand(root *cobra.Command, name string) error {
	var names []string
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	if near := spec.Nearest(name, names); near != "" {
		return fmt.Errorf("unknown command %q (did you mean %s?)", name, near)
	}
	return fmt.Errorf("unknown command %q (see `dsec --help`)", name)
}

// nArgs checks the number of arguments; most < 0 is without bound.
func nArgs(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return usagef("%s: want %s, got %d arguments (see `%s --help`)", cmd.CommandPath(), what, len(args), cmd.CommandPath())
		}
		return nil
	}
}

// NoArgs refuses arguments, as wrong usage, for the commands of Hooks.
func NoArgs(cmd *cobra.Command, args []string) error {
	return nArgs(0, 0, "no arguments")(cmd, args)
}

// writeAll writes and drops the error of a closed terminal or pipe, of which
// nobody could be told.
func writeAll(w io.Writer, s string) { _, _ = io.WriteString(w, s) }
