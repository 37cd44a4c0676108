package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/store/db"
)

// Filter selects sessions of a project. Empty fields select all.
type Filter struct {
	Project string
	Phases  []session.Phase
	Job     string
	Lease   string
	Labels  map[string]string // all of them
	After   string            // id; the page begins behind it, in the order asked for
	Newest  bool              // newest first
	Limit   int               // 0: all
}

// columns in the order of db.Session.
const columns = `id, project, request, ordinal, job, template, priority, payload, no_pool, detached, spec, labels, env,
 version, phase, desired, reclaim, reason, error, node, box, pooled, cold_reason, created_at, started_at, ended_at, updated_at, lease,
 deadline_at, lifetime_us, at_deadline`

// List gives a page of sessions in the order of their ids, which is that of their creation.
//
// Its statement is put together here and not generated: a statement that takes
// every filter as "null or equal" keeps the planner from using the index that fits.
func (s *Store) List(ctx context.Context, f Filter) ([]*Session, error) {
	text, args := f.statement()
	rows, err := s.read.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, failed("list", err)
	}
	defer rows.Close()
	out := []*Session{}
	for rows.Next() {
		var d db.Session
		if err := rows.Scan(&d.ID, &d.Project, &d.Request, &d.Ordinal, &d.Job, &d.Template, &d.Priority, &d.Payload, &d.NoPool, &d.Detached,
			&d.Spec, &d.Labels, &d.Env, &d.Version, &d.Phase, &d.Desired, &d.Reclaim, &d.Reason, &d.Error, &d.Node, &d.Box,
			&d.Pooled, &d.ColdReason, &d.CreatedAt, &d.StartedAt, &d.EndedAt, &d.UpdatedAt, &d.Lease,
			&d.DeadlineAt, &d.LifetimeUs, &d.AtDeadline); err != nil {
			return nil, failed("list", err)
		}
		rec, err := fromRow(&d)
		if err != nil {
			return nil, failed("list", err)
		}
		out = append(out, rec)
	}
	return out, failed("list", rows.Err())
}

func (f *Filter) statement() (text string, args []any) {
	var b strings.Builder
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	fmt.Fprintf(&b, "select %s from sessions where project = %s", columns, arg(f.Project))
	if len(f.Phases) > 0 {
		var in []string
		for _, p := range f.Phases {
			in = append(in, arg(string(p)))
		}
		fmt.Fprintf(&b, " and phase in (%s)", strings.Join(in, ", "))
	}
	if f.Job != "" {
		// Said twice for the partial index, whose condition the planner must see.
		fmt.Fprintf(&b, " and job = %s and job <> ''", arg(f.Job))
	}
	if f.Lease != "" {
		fmt.Fprintf(&b, " and lease = %s and lease <> ''", arg(f.Lease))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		fmt.Fprintf(&b, " and id in (select session from session_labels where project = %s and name = %s and value = %s)",
			arg(f.Project), arg(name), arg(f.Labels[name]))
	}
	before, order := ">", "asc"
	if f.Newest {
		before, order = "<", "desc"
	}
	if f.After != "" {
		fmt.Fprintf(&b, " and id %s %s", before, arg(f.After))
	}
	fmt.Fprintf(&b, " order by id %s", order)
	if f.Limit > 0 {
		fmt.Fprintf(&b, " limit %s", arg(int64(f.Limit)))
	}
	return b.String(), args
}
