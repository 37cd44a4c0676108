package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newShell(e *Env) *cobra.Command {
	var user, cwd, attach string
	cmd := &cobra.Command{
		Use:   "shell [flags] SESSION",
		Short: "Open an interactive shell in a session",
		Long: `Open an interactive login shell on a terminal in a session: every key goes there,
and the size follows this terminal. The operation's id is printed first, so that
after a lost connection --attach takes it up again, with what was missed.`,
		Example: `  dsec shell $id
  dsec shell -u root $id
  dsec shell --attach op_123 $id`,
		Args: nArgs(1, 1, "SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.bare = true
			return e.shell(cmd.Context(), args[0], user, cwd, attach)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&user, "user", "u", "", "user in the box (default the session's)")
	fl.StringVarP(&cwd, "workdir", "w", "", "working directory in the box")
	fl.StringVar(&attach, "attach", "", "take up the shell with this operation id")
	return cmd
}

// loginShell prefers bash, which every sizeable template has.
const loginShell = "if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l"

func (e *Env) shell(ctx context.Context, id, user, cwd, attach string) error {
	client, err := e.Client()
	if err != nil {
		return err
	}
	s := client.Session(id)
	rest := context.WithoutCancel(ctx)
	var p *dsec.Process
	proc := func() process { return remoteProcess{p} }
	if attach != "" {
		p, err = s.Attach(rest, attach, 0, 0)
		proc = func() process { return attachedProcess{remoteProcess{p}, client, id} }
	} else {
		rows, cols := e.size()
		p, err = s.Start(rest, dsec.Command{
			Argv: []string{"/bin/sh", "-c", loginShell}, User: user, Cwd: cwd,
			Env: map[string]string{"TERM": termName()}, PTY: &dsec.Size{Rows: rows, Cols: cols}, StdinStream: true,
		})
	}
	if err != nil {
		return err
	}
	if attach != "" { // it has the size of the terminal that was lost
		rows, cols := e.size()
		if err := p.Resize(rest, dsec.Size{Rows: rows, Cols: cols}); err != nil && !dsec.IsReason(err, "conflict") {
			return errors.Join(err, p.Close())
		}
	}
	if !e.quiet {
		writeAll(e.Err, "dsec: shell "+p.OpID()+"\n")
	}
	r, err := e.join(ctx, proc())
	if err != nil {
		return err
	}
	if err := dsec.FromWire(r.GetError()); err != nil {
		return err
	}
	note, code := ending(r)
	if note != "" {
		writeAll(e.Err, "dsec: "+note+"\n")
	}
	if code != 0 {
		return exitCode(code)
	}
	return nil
}
