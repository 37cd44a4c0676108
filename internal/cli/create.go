package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newCreate(e *Env) *cobra.Command {
	var f sessionFlags
	var count int
	var key string
	var noWait bool
	var lease, atDeadline string
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:   "create [flags]",
		Short: "Make sessions and print their ids",
		Long: `Make sessions and print their ids, one a line, when each is RUNNING.

Without --key, an interrupted create leaves nothing. With a key, the same
command gives the same sessions again for 24 hours.`,
		Example: `  dsec create
  dsec create -t python --mem 1Gi --cpu 2 -l run=7
  dsec create -f spec.yaml --code ./task --env SEED=1 --secret TOKEN
  dsec create --count 1000 --job eval-7 --key eval-7`,
		Args: nArgs(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if count < 1 {
				return usagef("--count %d: want 1 or more", count)
			}
			o, err := f.options(e)
			if err != nil {
				return err
			}
			o.IdempotencyKey, o.NoWait, o.Lease = key, noWait, lease
			o.Lifetime, o.AtDeadline = lifetime, atDeadline
			return e.create(cmd.Context(), count, o)
		},
	}
	f.register(cmd)
	cmd.Flags().IntVarP(&count, "count", "n", 1, "number of sessions, to 32768")
	cmd.Flags().StringVar(&key, "key", "", "idempotency key")
	cmd.Flags().StringVar(&lease, "lease", "", "lease that owns the sessions")
	cmd.Flags().DurationVar(&lifetime, "lifetime", 0, "when its time is up, such as 1h, whatever it does (0: never); see dsec deadline")
	cmd.Flags().StringVar(&atDeadline, "at-deadline", "", "what is done then: stop or suspend (default stop)")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "answer when queued or placed")
	return cmd
}

// created is one item of a create, as JSON.
type created struct {
	ID      string          `json:"id,omitempty"`
	Session json.RawMessage `json:"session,omitempty"`
	Error   *failure        `json:"error,omitempty"`
}

func (e *Env) create(ctx context.Context, n int, o dsec.CreateOptions) error {
	c, err := e.Client()
	if err != nil {
		return err
	}
	p := e.progress()
	done := 0
	results, err := c.CreateN(ctx, n, o, func(_ int, r dsec.CreateResult) {
		done++
		if n > 1 {
			p.step("creating", int64(done), int64(n))
		}
		if !e.JSON() && r.Err == nil {
			p.done()
			writeAll(e.Out, r.Session.ID()+"\n")
		}
	})
	p.done()
	if err != nil {
		return err
	}
	var errs []error
	items := make([]created, 0, n)
	for _, r := range results {
		var it created
		if r.Session != nil {
			it.ID = r.Session.ID()
			if i := r.Session.Info(); i != nil {
				it.Session = raw(i)
			}
		}
		if r.Err != nil {
			f := failureOf(r.Err)
			it.Error = &f
			errs = append(errs, r.Err)
		}
		items = append(items, it)
	}
	if e.JSON() {
		if err := printJSON(e.Out, items); err != nil {
			return err
		}
	}
	return firstOf(errs, n, "sessions were not made")
}

// firstOf gives the first of several errors, and says how many there were.
func firstOf(errs []error, n int, what string) error {
	if len(errs) == 0 {
		return nil
	}
	if n == 1 {
		return errs[0]
	}
	e, ok := errors.AsType[*dsec.Error](errs[0])
	if !ok {
		return errs[0]
	}
	first := *e
	first.Message = fmt.Sprintf("%d of %d %s; the first: %s", len(errs), n, what, e.Message)
	return &first
}
