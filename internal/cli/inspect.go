package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newInspect(e *Env) *cobra.Command {
	return &cobra.Command{
		Use:     "inspect SESSION...",
		Short:   "Show a session, its box and its operations",
		Long:    "Show sessions with their boxes' live figures and operations. Secrets are never shown.",
		Example: "  dsec inspect $id\n  dsec inspect $id -o json",
		Args:    nArgs(1, -1, "SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.inspect(cmd.Context(), args)
		},
	}
}

func (e *Env) inspect(ctx context.Context, ids []string) error {
	client, err := e.Client()
	if err != nil {
		return err
	}
	var out []map[string]any
	for i, id := range ids {
		s := client.Session(id)
		in, err := s.Inspect(ctx)
		if err != nil {
			return err
		}
		ops, _ := s.Ops(ctx) // a session without a box has none to list
		if e.JSON() {
			list := make([]json.RawMessage, 0, len(ops))
			for _, o := range ops {
				list = append(list, raw(o))
			}
			m := map[string]any{"session": raw(in.GetSession()), "operations": list}
			if in.GetBox() != nil {
				m["box"] = raw(in.GetBox())
			}
			out = append(out, m)
			continue
		}
		if i > 0 {
			writeAll(e.Out, "\n")
		}
		table(e.Out, inspectRows(in, time.Now()))
		if len(ops) > 0 {
			writeAll(e.Out, "\n")
			table(e.Out, opRows(ops, time.Now()))
		}
	}
	if e.JSON() {
		return printJSON(e.Out, out)
	}
	return nil
}

func inspectRows(in *dsec.Inspection, now time.Time) [][]string {
	s, b := in.GetSession(), in.GetBox()
	rows := [][]string{
		{"session", s.GetId()}, {"phase", s.GetPhase()}, {"template", s.GetTemplate()}, {"project", s.GetProject()}, {"job", s.GetJob()},
		{"labels", labelText(s.GetLabels())}, {"created", age(s.GetCreated(), now) + " ago"}, {"reclaim", s.GetReclaim()},
	}
	if d := deadlineText(s, now); d != "" {
		rows = append(rows, []string{"deadline", d})
	}
	if r := s.GetReason(); r != "" {
		rows = append(rows, []string{"reason", r})
	}
	if err := s.GetError(); err != nil {
		rows = append(rows, []string{"error", fmt.Sprintf("%s [%s, %s]", err.GetMessage(), err.GetClass(), err.GetReason())})
	}
	if b == nil {
		return rows
	}
	from := "warm pool"
	if !b.GetPooled() {
		from = "made cold"
		if r := b.GetColdReason(); r != "" {
			from += ": " + r
		}
	}
	u, l := b.GetUsage(), b.GetLimits()
	return append(rows,
		[]string{"box", b.GetId() + " on " + s.GetNode()}, []string{"state", b.GetState()}, []string{"runtime", b.GetRuntime()}, []string{"from", from},
		[]string{"idle", duration(time.Duration(b.GetIdleMs()) * time.Millisecond)}, []string{"running ops", fmt.Sprint(b.GetRunningOps())},
		[]string{"memory", fmt.Sprintf("%s of %s, peak %s", size(u.GetMemory()), size(l.GetMemory()), size(u.GetMemoryPeak()))},
		[]string{"cpu", fmt.Sprintf("%.0f ms used, %g cores at most", u.GetCpuMs(), l.GetCpu())},
		[]string{"processes", fmt.Sprintf("%d of %d", u.GetPids(), l.GetPids())},
		[]string{"writable store", fmt.Sprintf("%s of %s", size(u.GetStoreUsed()), size(u.GetStoreLimit()))},
		[]string{"out of memory", fmt.Sprintf("%d kills", u.GetOomKills())},
		[]string{"network", networkText(b.GetNetwork())},
	)
}

// networkText says what is in force, and what came of it where anything could.
func networkText(n *dsecv1.BoxNetwork) string {
	text := n.GetEgressPolicy()
	if p := n.GetPhase(); p != "" {
		text += " in phase " + p
	}
	if n.GetAllowed()+n.GetRefused() == 0 {
		return text
	}
	return fmt.Sprintf("%s: %d open, %d allowed, %d refused, %s out, %s in", text, n.GetOpen(), n.GetAllowed(), n.GetRefused(), size(n.GetSentBytes()), size(n.GetReceivedBytes()))
}
