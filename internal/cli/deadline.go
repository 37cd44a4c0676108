package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func newDeadline(e *Env) *cobra.Command {
	var d dsec.Deadline
	var none bool
	cmd := &cobra.Command{
		Use:   "deadline SESSION... (--in DURATION | --none)",
		Short: "Move the ends of sessions",
		Long: `Move the moment at which sessions are stopped or suspended, whatever they do.

A deadline does not act on a suspended session: it acts when that is resumed. One
that passes while the server is down acts as soon as the server runs again.`,
		Example: `  dsec deadline $id --in 1h
  dsec deadline $id --in 30m --then suspend
  dsec deadline $id --in 2h --extend
  dsec deadline $id --none`,
		Args: nArgs(1, -1, "SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case none == (d.In != 0):
				return usagef("say when: --in DURATION, such as 90s or 1h30m, or --none")
			case none && (d.Then != "" || d.Extend):
				return usagef("--none: where there is no deadline, --then and --extend mean nothing")
			case d.In < 0:
				return usagef("--in %s: want a time to come", d.In)
			}
			return e.outcomes(cmd.Context(), "moving deadlines", func(ctx context.Context, c *dsec.Client) ([]*dsec.Outcome, error) {
				var out []*dsec.Outcome
				for _, id := range args {
					s := c.Session(id)
					o := &dsec.Outcome{Id: id}
					if err := s.SetDeadline(ctx, d); err != nil {
						o.Error = wireOf(err)
					} else {
						o.Session = s.Info()
					}
					out = append(out, o)
				}
				return out, nil
			})
		},
	}
	fl := cmd.Flags()
	fl.DurationVar(&d.In, "in", 0, "how far away, such as 90s or 1h30m, to 8784h (366 days)")
	fl.BoolVar(&none, "none", false, "no deadline any more")
	fl.StringVar(&d.Then, "then", "", "what is done then: stop or suspend (default as it was, stop at first)")
	fl.BoolVar(&d.Extend, "extend", false, "move it only to later")
	return cmd
}

// wireOf gives an error the form that it has in the answers about many sessions.
func wireOf(err error) *dsecv1.Error {
	e, ok := errors.AsType[*dsec.Error](err)
	if !ok {
		return &dsecv1.Error{Class: dsec.ClassUser, Reason: "invalid_argument", Message: err.Error()}
	}
	return &dsecv1.Error{Class: e.Class, Reason: e.Reason, Scope: e.Scope, Object: e.Object, Message: e.Message, Remedy: e.Remedy, Retryable: e.Retryable}
}

// deadlineText says when a session's time is up, and what is done then.
func deadlineText(s *dsec.Info, now time.Time) string {
	at := s.GetDeadline()
	if at == nil {
		return ""
	}
	if left := at.AsTime().Sub(now); left > 0 {
		return s.GetAtDeadline() + " in " + duration(left)
	}
	return s.GetAtDeadline() + ", now due"
}
