package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

func newTemplateVerify(e *Env) *cobra.Command {
	return &cobra.Command{
		Use: "verify TEMPLATE...", Short: "Read templates again and compare them with their digests", Args: nArgs(1, -1, "TEMPLATE"),
		Long: `Read every layer of templates from the disk again and compare it with its digest. It
ends at the first that is not what it was when it was made.`,
		Example: "  dsec template verify python\n  dsec template verify python@3f1c base",
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := e.templates(cmd.Context())
			if err != nil {
				return err
			}
			list := make([]json.RawMessage, 0, len(args))
			for _, ref := range args {
				t, err := store.Verify(cmd.Context(), ref)
				if err != nil {
					return err
				}
				list = append(list, raw(t))
				if !e.JSON() && !e.quiet {
					writeAll(e.Out, fmt.Sprintf("%s@%s: %d layers, %s: as recorded\n", t.GetName(), t.GetVersion(), len(t.GetLayers()), size(t.GetSize())))
				}
			}
			if e.JSON() {
				return printJSON(e.Out, list)
			}
			return nil
		},
	}
}
