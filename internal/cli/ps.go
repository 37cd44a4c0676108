package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

var phases = []string{dsec.Pending, dsec.Scheduled, dsec.Running, dsec.Suspended, dsec.Completed, dsec.Failed}

func newPs(e *Env) *cobra.Command {
	var all, newest bool
	var only, labels []string
	var job, lease string
	var limit int
	cmd := &cobra.Command{
		Use:     "ps [flags]",
		Aliases: []string{"ls"},
		Short:   "List sessions",
		Long:    "List the project's sessions: the live ones, or with --all or --phase others too.",
		Example: `  dsec ps
  dsec ps --job eval-7 --phase RUNNING
  dsec ps -a --newest --limit 20 -o json
  dsec ps -q -l run=7 | xargs dsec stop`,
		Args: nArgs(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := dsec.ListOptions{Job: job, Lease: lease, NewestFirst: newest}
			for _, p := range only {
				p = strings.ToUpper(p)
				if !slices.Contains(phases, p) {
					return usagef("--phase %s: want one of %s", p, strings.Join(phases, ", "))
				}
				o.Phases = append(o.Phases, p)
			}
			if len(only) == 0 && !all {
				o.Phases = phases[:4]
			}
			var err error
			if o.Labels, err = pairs("--label", labels, nil); err != nil {
				return err
			}
			if limit < 0 {
				return usagef("--limit %d: want 0 (all) or more", limit)
			}
			return e.ps(cmd.Context(), o, limit)
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&all, "all", "a", false, "ended sessions too")
	fl.StringSliceVar(&only, "phase", nil, "only these phases")
	fl.StringVar(&job, "job", "", "only this job")
	fl.StringVar(&lease, "lease", "", "only what this lease owns")
	fl.StringArrayVarP(&labels, "label", "l", nil, "only with this label, KEY=VALUE (may be given again)")
	fl.BoolVar(&newest, "newest", false, "newest first")
	fl.IntVar(&limit, "limit", 0, "at most this many (0: all)")
	return cmd
}

func (e *Env) ps(ctx context.Context, o dsec.ListOptions, limit int) error {
	client, err := e.Client()
	if err != nil {
		return err
	}
	var list []*dsec.Info
	for s, err := range client.List(ctx, o) {
		if err != nil {
			return err
		}
		list = append(list, s)
		if limit > 0 && len(list) >= limit {
			break
		}
	}
	switch {
	case e.JSON():
		return printMessages(e.Out, list)
	case e.quiet:
		for _, s := range list {
			writeAll(e.Out, s.GetId()+"\n")
		}
		return nil
	}
	table(e.Out, sessionRows(list, time.Now()))
	return nil
}

func sessionRows(list []*dsec.Info, now time.Time) [][]string {
	rows := [][]string{{"SESSION", "PHASE", "TEMPLATE", "JOB", "AGE", "LABELS", "REASON"}}
	for _, s := range list {
		rows = append(rows, []string{s.GetId(), s.GetPhase(), s.GetTemplate(), s.GetJob(), age(s.GetCreated(), now), labelText(s.GetLabels()), s.GetReason()})
	}
	return rows
}

func labelText(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for k, v := range m {
		parts = append(parts, fmt.Sprintf("%s=%s", k, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}
