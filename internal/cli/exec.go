package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newExec(e *Env) *cobra.Command {
	var f execFlags
	var env []string
	var user, shell, op string
	var detach bool
	cmd := &cobra.Command{
		Use:   "exec SESSION [flags] -- COMMAND [ARG...]",
		Short: "Run a command in a session",
		Long: `Run a command in a session, show its output as it comes, and exit with its code.

Ctrl-C sends SIGINT to the command and waits for it; after 3 s its whole process
tree is killed. A repeated call with the same --op-id gives the recorded result
without running again.`,
		Example: `  dsec exec $id -- python3 -c 'print(1)'
  dsec exec $id -c 'cd /tmp && ls | wc -l'
  dsec exec $id --shell-session main -c 'export A=1; cd src'
  tar c . | dsec exec $id -i -- tar x -C /workspace
  dsec exec $id -T -- htop
  dsec exec $id -d -- sleep 1000`,
		Args: nArgs(1, -1, "SESSION and a command"),
		RunE: func(cmd *cobra.Command, args []string) error {
			e.bare = true
			rest, err := flagsAfter(cmd, args)
			if err != nil {
				return err
			}
			c, err := f.command(rest)
			if err != nil {
				return err
			}
			if c.Env, err = pairs("--env", env, os.LookupEnv); err != nil {
				return err
			}
			c.User, c.ShellSession, c.OpID = user, shell, op
			if shell != "" && c.Script == "" {
				return usagef("--shell-session takes a --script")
			}
			if detach && (f.terminal || f.interactive) {
				return usagef("--detach excludes -i and -T")
			}
			return e.exec(cmd.Context(), args[0], c, &f, detach)
		},
	}
	f.register(cmd)
	fl := cmd.Flags()
	fl.StringArrayVarP(&env, "env", "e", nil, "environment variable, NAME=VALUE or NAME (may be given again)")
	fl.StringVarP(&user, "user", "u", "", "user in the box (default the session's)")
	fl.StringVar(&shell, "shell-session", "", "keep directory, environment and functions between scripts of this name")
	fl.StringVar(&op, "op-id", "", "id of the operation, for safe repetition")
	fl.BoolVarP(&detach, "detach", "d", false, "print the operation's id when the command has started")
	return cmd
}

func (e *Env) exec(ctx context.Context, id string, c dsec.Command, f *execFlags, detach bool) error {
	client, err := e.Client()
	if err != nil {
		return err
	}
	s := client.Session(id)
	if !detach {
		return e.execute(ctx, remoteBox{s}, c, f)
	}
	c.Background = true
	r, err := s.Run(ctx, c)
	if err != nil {
		return err
	}
	if e.JSON() {
		return printJSON(e.Out, map[string]string{"session": id, "op_id": r.GetOpId()})
	}
	writeAll(e.Out, r.GetOpId()+"\n")
	return nil
}

// flagsAfter reads flags that follow the first argument, up to the first word
// that is none, or --; what is left is the command with its own flags.
func flagsAfter(cmd *cobra.Command, args []string) ([]string, error) {
	if err := cmd.Flags().Parse(args[1:]); err != nil {
		return nil, flagError(cmd, err)
	}
	return cmd.Flags().Args(), nil
}
