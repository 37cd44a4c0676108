package cli

import (
	"time"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newKey(e *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key",
		Short:   "Make, list and revoke API keys",
		Long:    "Make, list and revoke API keys. For the machine's root, on the server's socket.",
		Example: "  dsec key create --project trainer --name ci\n  dsec key ls\n  dsec key revoke 01jd…",
		RunE:    group,
	}
	cmd.AddCommand(newKeyCreate(e), newKeyLs(e), newKeyRevoke(e))
	return cmd
}

func newKeyCreate(e *Env) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "create", Short: "Make a key of --project and show its secret, once", Args: nArgs(0, 0, "no arguments"),
		Example: "  export DSEC_API_KEY=$(dsec key create --project trainer)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.Client()
			if err != nil {
				return err
			}
			r, err := c.Keys.CreateKey(cmd.Context(), &dsecv1.CreateKeyRequest{Project: e.project, Name: name})
			if err != nil {
				return dsec.AsError(err)
			}
			if e.JSON() {
				return printMessage(e.Out, r)
			}
			if !e.quiet {
				writeAll(e.Err, "key "+r.GetKey().GetId()+" of project "+r.GetKey().GetProject()+"; it cannot be shown again:\n")
			}
			writeAll(e.Out, r.GetSecret()+"\n")
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "a label for people")
	return cmd
}

func newKeyLs(e *Env) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List keys, without secrets", Args: nArgs(0, 0, "no arguments"),
		Example: "  dsec key ls\n  dsec key ls --project trainer",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.Client()
			if err != nil {
				return err
			}
			r, err := c.Keys.ListKeys(cmd.Context(), &dsecv1.ListKeysRequest{Project: e.project})
			if err != nil {
				return dsec.AsError(err)
			}
			if e.JSON() {
				return printMessages(e.Out, r.GetKeys())
			}
			rows := [][]string{{"KEY", "PROJECT", "NAME", "ENDS IN", "AGE", "REVOKED"}}
			now := time.Now()
			for _, k := range r.GetKeys() {
				revoked := age(k.GetRevoked(), now)
				if revoked != "" {
					revoked += " ago"
				}
				rows = append(rows, []string{k.GetId(), k.GetProject(), k.GetName(), k.GetHint(), age(k.GetCreated(), now), revoked})
			}
			table(e.Out, rows)
			return nil
		},
	}
}

func newKeyRevoke(e *Env) *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY...", Short: "End keys at once", Args: nArgs(1, -1, "KEY"),
		Example: "  dsec key revoke 01jd…",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := e.Client()
			if err != nil {
				return err
			}
			for _, id := range args {
				if _, err := c.Keys.RevokeKey(cmd.Context(), &dsecv1.RevokeKeyRequest{Id: id}); err != nil {
					return dsec.AsError(err)
				}
			}
			return nil
		},
	}
}
