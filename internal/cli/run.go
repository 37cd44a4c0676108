package cli

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newRun(e *Env) *cobra.Command {
	var s sessionFlags
	var f execFlags
	var local, keep bool
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG...]",
		Short: "Make a box, run a command in it, clean up",
		Long: `Make a box, run a command in it, show its output, and exit with its code. Nothing
is left afterwards, also after Ctrl-C.

It needs no server: when none answers, the box is made by this process (as root).`,
		Example: `  dsec run -- python3 -c 'print(1)'
  dsec run -T -- bash
  dsec run --mem 64Mi --timeout 10s -c 'head -c 1G /dev/zero | tail'
  dsec run --code ./task -- make test`,
		Args: nArgs(0, -1, "a command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.bare = true
			c, err := f.command(args)
			if err != nil {
				return err
			}
			if keep && local {
				return usagef("--keep needs a server: it excludes --local")
			}
			if !local && (keep || e.ServerAnswers(cmd.Context())) {
				return e.runRemote(cmd.Context(), &s, c, &f, keep)
			}
			return e.runLocal(cmd.Context(), &s, c, &f)
		},
	}
	s.register(cmd)
	f.register(cmd)
	cmd.Flags().BoolVar(&local, "local", false, "make the box in this process even when a server answers")
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the session and print its id on standard error")
	return cmd
}

// cleanUp bounds how long the end of a box is awaited after Ctrl-C.
const cleanUp = 30 * time.Second

func (e *Env) runRemote(ctx context.Context, f *sessionFlags, c dsec.Command, x *execFlags, keep bool) (err error) {
	o, err := f.options(e)
	if err != nil {
		return err
	}
	client, err := e.Client()
	if err != nil {
		return err
	}
	s, err := client.Create(ctx, o)
	if err != nil {
		return err
	}
	if keep {
		writeAll(e.Err, s.ID()+"\n")
	} else {
		defer func() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
			defer cancel()
			err = prefer(err, s.Stop(stop, "dsec run has ended"))
		}()
	}
	return e.execute(ctx, remoteBox{s}, c, x)
}

func (e *Env) runLocal(ctx context.Context, f *sessionFlags, c dsec.Command, x *execFlags) (err error) {
	if e.hooks.Local == nil {
		return lacking("dsec run")
	}
	o := LocalOptions{DataDir: e.absDataDir(), Template: f.template, CodeDir: f.codeDir}
	if f.priority != "" {
		return usagef("--priority needs a server")
	}
	if o.Spec, err = f.overrides(e); err != nil {
		return err
	}
	if o.Env, err = f.environment(); err != nil {
		return err
	}
	if o.Secrets, err = pairs("--secret", f.secrets, os.LookupEnv); err != nil {
		return err
	}
	if f.code != "" {
		if o.Code, err = readCode(f.code); err != nil {
			return err
		}
	}
	guest, done, err := e.hooks.Local(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = prefer(err, done()) }()
	return e.execute(ctx, localBox{guest}, c, x)
}

// prefer gives the command's own end, unless it was a success and the clean-up failed.
func prefer(err, cleanup error) error {
	if err == nil {
		return cleanup
	}
	if _, own := errors.AsType[exitCode](err); own && cleanup != nil {
		return cleanup
	}
	return err
}
