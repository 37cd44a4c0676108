package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/doctor"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newDoctor(e *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Examine this machine: can boxes run here, what is missing, what is left over",
		Long: `Examine this machine: namespaces, AppArmor, SELinux, control groups, overlay and
the data directory, kernel features (each is tried, not guessed), limits, disk,
memory, leftovers, and the server. Each check says what was found and the remedy.
The exit code is 1 when a check fails; warnings do not count. Run it as root.`,
		Example: "  sudo dsec doctor\n  dsec doctor -o json | jq '.checks[] | select(.status != \"ok\")'",
		Args:    nArgs(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			h := doctor.Linux(e.absDataDir())
			h.Server = e.serverHealth
			checks := doctor.Run(cmd.Context(), h)
			return e.showChecks(checks)
		},
	}
}

// serverHealth asks the server and says how full it is.
func (e *Env) serverHealth(ctx context.Context) (string, error) {
	if !e.serverNamed() {
		return "", fmt.Errorf("no server runs on %s", e.absDataDir())
	}
	c, err := dsec.New(dsec.Options{URL: e.URL(), Project: e.project, Transport: e.transport, RetryFor: -1})
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.Healthy(ctx); err != nil {
		return "", err
	}
	found := e.URL() + " is healthy"
	if s, err := c.Nodes.GetStats(ctx, &dsecv1.GetStatsRequest{}); err == nil { // needs a key, health does not
		found += fmt.Sprintf(": %d boxes, %d pooled, %s of %s promised", s.GetBoxes(), s.GetPooled(), size(s.GetMemPromised()), size(s.GetMemTotal()))
	}
	return found, nil
}

func (e *Env) showChecks(checks []doctor.Check) error {
	worst := doctor.Worst(checks)
	if e.JSON() {
		if err := printJSON(e.Out, map[string]any{"status": worst, "checks": checks}); err != nil {
			return err
		}
	} else {
		e.writeChecks(checks)
	}
	if worst == doctor.Fail {
		return exitCode(exitFailed)
	}
	return nil
}

func (e *Env) writeChecks(checks []doctor.Check) {
	group := ""
	count := map[doctor.Status]int{}
	for _, c := range checks {
		count[c.Status]++
		if e.quiet && c.Status == doctor.OK {
			continue
		}
		if c.Group != group {
			group = c.Group
			writeAll(e.Out, group+"\n")
		}
		writeAll(e.Out, fmt.Sprintf("  %-4s  %-22s %s\n", c.Status, c.Name, printable(c.Found)))
		if c.Remedy != "" {
			writeAll(e.Out, fmt.Sprintf("        %-22s remedy: %s\n", "", c.Remedy))
		}
	}
	writeAll(e.Out, fmt.Sprintf("%d ok, %d warnings, %d failures\n", count[doctor.OK], count[doctor.Warn], count[doctor.Fail]))
}
