package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// selectFlags name sessions in exactly one way.
type selectFlags struct {
	job, key string
	labels   []string
	all      bool
}

func (f *selectFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.job, "job", "", "all of a job")
	fl.StringArrayVarP(&f.labels, "label", "l", nil, "all with this label, KEY=VALUE (may be given again)")
	fl.StringVar(&f.key, "key", "", "those of the create with this idempotency key")
	fl.BoolVar(&f.all, "all", false, "all live sessions of the project")
}

func (f *selectFlags) selector(ids []string) (*dsec.Selector, error) {
	labels, err := pairs("--label", f.labels, nil)
	if err != nil {
		return nil, err
	}
	ways := 0
	for _, given := range []bool{len(ids) > 0, f.job != "", f.key != "", len(labels) > 0, f.all} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, usagef("name sessions in one way: by id, --job, --label, --key or --all")
	}
	return &dsec.Selector{Ids: ids, Job: f.job, Labels: labels, IdempotencyKey: f.key, All: f.all}, nil
}

func newStop(e *Env) *cobra.Command {
	var f selectFlags
	var reason string
	cmd := &cobra.Command{
		Use:     "stop [flags] [SESSION...]",
		Aliases: []string{"rm"},
		Short:   "End sessions and wait until nothing of their boxes is left",
		Example: `  dsec stop $id
  dsec stop --job eval-7
  dsec stop -l run=7 --reason "superseded"
  dsec stop --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			sel, err := f.selector(args)
			if err != nil {
				return err
			}
			return e.outcomes(cmd.Context(), "stopping", func(ctx context.Context, c *dsec.Client) ([]*dsec.Outcome, error) {
				return c.Stop(ctx, sel, reason)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&reason, "reason", "stopped by dsec stop", "kept as the sessions' reason")
	return cmd
}

func newSuspend(e *Env) *cobra.Command {
	return pauseCommand(e, "suspend", "Freeze the processes of sessions", (*dsec.Client).Suspend)
}

func newResume(e *Env) *cobra.Command {
	return pauseCommand(e, "resume", "Let the processes of suspended sessions go on", (*dsec.Client).Resume)
}

func pauseCommand(e *Env, name, short string, do func(*dsec.Client, context.Context, *dsec.Selector) ([]*dsec.Outcome, error)) *cobra.Command {
	var f selectFlags
	cmd := &cobra.Command{
		Use:     name + " [flags] [SESSION...]",
		Short:   short,
		Example: "  dsec " + name + " $id\n  dsec " + name + " --job eval-7",
		RunE: func(cmd *cobra.Command, args []string) error {
			sel, err := f.selector(args)
			if err != nil {
				return err
			}
			return e.outcomes(cmd.Context(), name, func(ctx context.Context, c *dsec.Client) ([]*dsec.Outcome, error) {
				return do(c, ctx, sel)
			})
		},
	}
	f.register(cmd)
	return cmd
}

// outcome is one session's outcome, as JSON.
type outcome struct {
	ID    string          `json:"id"`
	Phase string          `json:"phase,omitempty"`
	Info  json.RawMessage `json:"session,omitempty"`
	Error *failure        `json:"error,omitempty"`
}

// outcomes runs a call about many sessions and shows each one's outcome.
func (e *Env) outcomes(ctx context.Context, doing string, call func(context.Context, *dsec.Client) ([]*dsec.Outcome, error)) error {
	client, err := e.Client()
	if err != nil {
		return err
	}
	p := e.progress()
	if p.live {
		p.status(doing)
	}
	results, err := call(ctx, client)
	p.done()
	if err != nil {
		return err
	}
	var errs []error
	list := make([]outcome, 0, len(results))
	rows := [][]string{{"SESSION", "PHASE", "REASON"}}
	for _, r := range results {
		o := outcome{ID: r.GetId(), Phase: r.GetSession().GetPhase()}
		if r.GetSession() != nil {
			o.Info = raw(r.GetSession())
		}
		reason := r.GetSession().GetReason()
		if w := r.GetError(); w != nil {
			err := dsec.FromWire(w)
			f := failureOf(err)
			o.Error, reason = &f, err.Error()
			errs = append(errs, err)
		}
		list = append(list, o)
		rows = append(rows, []string{o.ID, o.Phase, reason})
	}
	switch {
	case e.JSON():
		if err := printJSON(e.Out, list); err != nil {
			return err
		}
	case e.quiet:
	case len(list) > 0:
		table(e.Out, rows)
	}
	return firstOf(errs, len(results), "sessions failed")
}
