package store

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store/db"
)

// Session is a stored session: its state, and what it was asked to be, which never changes.
type Session struct {
	session.Row
	Project, Job, Template string
	Priority               string
	// Request names the create call that made it, Ordinal its place in that call.
	Request string
	Ordinal int
	// Payload tells that it came with secrets or code. They are not stored: a
	// session that loses them with the server cannot be started any more.
	Payload bool
	NoPool  bool
	// Detached tells that its create outlives its caller: it has an idempotency key, or did not wait.
	Detached    bool
	Spec        spec.Sandbox
	Labels, Env map[string]string
	// Lease names its owner; empty for none.
	Lease string
}

// wireError is how a verdict is kept. Its cause was for the log.
type wireError struct {
	Class     errdefs.Class  `json:"class"`
	Reason    errdefs.Reason `json:"reason"`
	Scope     errdefs.Scope  `json:"scope"`
	Object    string         `json:"object,omitempty"`
	Message   string         `json:"message"`
	Remedy    string         `json:"remedy,omitempty"`
	Retryable bool           `json:"retryable,omitempty"`
}

func insertParams(s *Session) (db.InsertSessionParams, error) {
	p := db.InsertSessionParams{
		ID: s.ID, Project: s.Project, Request: s.Request, Ordinal: int32(s.Ordinal), Job: s.Job, Template: s.Template,
		Priority: s.Priority, Payload: s.Payload, NoPool: s.NoPool, Detached: s.Detached,
		Version: s.Version, Phase: string(s.Phase), Desired: string(s.Desired), Reclaim: string(s.Reclaim), Reason: s.Reason,
		Node: s.Node, Box: s.Box, Pooled: s.Pooled, ColdReason: s.ColdReason,
		CreatedAt: micros(s.Created), StartedAt: micros(s.Started), EndedAt: micros(s.Ended), UpdatedAt: micros(s.Updated), Lease: s.Lease,
		DeadlineAt: micros(s.Deadline), LifetimeUs: s.Lifetime.Microseconds(), AtDeadline: string(s.AtDeadline),
	}
	for _, f := range []struct {
		to   *string
		from any
		skip bool
	}{
		{&p.Spec, s.Spec, false},
		{&p.Labels, s.Labels, len(s.Labels) == 0},
		{&p.Env, s.Env, len(s.Env) == 0},
	} {
		if f.skip {
			continue
		}
		b, err := json.Marshal(f.from)
		if err != nil {
			return p, fmt.Errorf("session %s: %w", s.ID, err)
		}
		*f.to = string(b)
	}
	var err error
	p.Error, err = encodeError(s.Error)
	return p, err
}

func updateParams(r session.Row, from int64) (db.UpdateSessionParams, error) {
	e, err := encodeError(r.Error)
	return db.UpdateSessionParams{
		ID: r.ID, FromVersion: from, Version: r.Version,
		Phase: string(r.Phase), Desired: string(r.Desired), Reclaim: string(r.Reclaim), Reason: r.Reason, Error: e,
		Node: r.Node, Box: r.Box, Pooled: r.Pooled, ColdReason: r.ColdReason,
		StartedAt: micros(r.Started), EndedAt: micros(r.Ended), UpdatedAt: micros(r.Updated),
		DeadlineAt: micros(r.Deadline), LifetimeUs: r.Lifetime.Microseconds(), AtDeadline: string(r.AtDeadline),
	}, err
}

func fromRow(d *db.Session) (*Session, error) {
	s := &Session{
		Row: session.Row{
			ID: d.ID, Version: d.Version, Phase: session.Phase(d.Phase), Desired: session.Desired(d.Desired),
			Reclaim: session.Reclaim(d.Reclaim), Reason: d.Reason, Node: d.Node, Box: d.Box, Pooled: d.Pooled, ColdReason: d.ColdReason,
			Created: instant(d.CreatedAt), Started: instant(d.StartedAt), Ended: instant(d.EndedAt), Updated: instant(d.UpdatedAt),
			Deadline: instant(d.DeadlineAt), Lifetime: time.Duration(d.LifetimeUs) * time.Microsecond, AtDeadline: session.Action(d.AtDeadline),
		},
		Project: d.Project, Job: d.Job, Template: d.Template, Priority: d.Priority,
		Request: d.Request, Ordinal: int(d.Ordinal), Payload: d.Payload, NoPool: d.NoPool, Detached: d.Detached, Lease: d.Lease,
	}
	for _, f := range []struct {
		from string
		to   any
	}{{d.Spec, &s.Spec}, {d.Labels, &s.Labels}, {d.Env, &s.Env}} {
		if f.from == "" {
			continue
		}
		if err := json.Unmarshal([]byte(f.from), f.to); err != nil {
			return nil, fmt.Errorf("session %s: %w", d.ID, err)
		}
	}
	if d.Error != "" {
		var w wireError
		if err := json.Unmarshal([]byte(d.Error), &w); err != nil {
			return nil, fmt.Errorf("session %s: %w", d.ID, err)
		}
		s.Error = &errdefs.Error{Class: w.Class, Reason: w.Reason, Scope: w.Scope, Object: w.Object, Message: w.Message, Remedy: w.Remedy, Retryable: w.Retryable}
	}
	return s, nil
}

func fromRows(ds []db.Session) ([]*Session, error) {
	out := make([]*Session, 0, len(ds))
	for i := range ds {
		s, err := fromRow(&ds[i])
		if err != nil {
			return nil, failed("read", err)
		}
		out = append(out, s)
	}
	return out, nil
}

func encodeError(e *errdefs.Error) (string, error) {
	if e == nil {
		return "", nil
	}
	b, err := json.Marshal(wireError{e.Class, e.Reason, e.Scope, e.Object, e.Message, e.Remedy, e.Retryable})
	return string(b), err
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us)
}
