package cli

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/version"
)

// versionInfo is what dsec version says.
type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Arch    string `json:"arch"`
	Server  string `json:"server,omitempty"`
}

func newVersion(e *Env) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version of dsec, and of the server when one answers", Args: nArgs(0, 0, "no arguments"),
		Example: "  dsec version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildVersion()
			if e.ServerAnswers(cmd.Context()) {
				ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
				defer cancel()
				if c, err := e.Client(); err == nil {
					if h, err := c.Nodes.GetHealth(ctx, &dsecv1.GetHealthRequest{}); err == nil {
						v.Server = h.GetVersion()
					}
				}
			}
			if e.JSON() {
				return printJSON(e.Out, v)
			}
			writeAll(e.Out, fmt.Sprintf("dsec %s (%s, %s, %s)\n", v.Version, orDash(v.Commit), v.Go, v.Arch))
			if v.Server != "" {
				writeAll(e.Out, "server "+v.Server+"\n")
			}
			return nil
		},
	}
}

func buildVersion() versionInfo {
	commit := version.Revision()
	return versionInfo{Version: version.Version, Commit: commit[:min(12, len(commit))], Go: runtime.Version(), Arch: runtime.GOOS + "/" + runtime.GOARCH}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
