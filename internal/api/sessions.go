package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
)

// sessions serves SessionService; its creates are in create.go.
type sessions struct{ *API }

func (s *sessions) Get(ctx context.Context, q *dsecv1.GetRequest) (*dsecv1.GetResponse, error) {
	if err := checkSession(q.GetSessionId()); err != nil {
		return nil, err
	}
	got, err := s.cfg.Control.Get(ctx, callerOf(ctx).project, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	return &dsecv1.GetResponse{Session: wireSession(got)}, nil
}

func (s *sessions) List(ctx context.Context, q *dsecv1.ListRequest) (*dsecv1.ListResponse, error) {
	if err := checkList(q); err != nil {
		return nil, err
	}
	if n := q.GetPageSize(); n < 0 || n > 1000 {
		return nil, bad("page_size", "use 1 to 1,000, or 0 for 100", "is %d", n)
	}
	page, next, err := s.cfg.Control.List(ctx, callerOf(ctx).project, control.Filter{
		Phases: q.GetPhases(), Job: q.GetJob(), Lease: q.GetLeaseId(), Labels: q.GetLabels(), Limit: int(q.GetPageSize()), Page: q.GetPageToken(), Newest: q.GetNewestFirst(),
	})
	if err != nil {
		return nil, err
	}
	out := &dsecv1.ListResponse{Sessions: make([]*dsecv1.Session, len(page)), NextPageToken: next}
	for i, one := range page {
		out.Sessions[i] = wireSession(one)
	}
	return out, nil
}

func (s *sessions) Wait(ctx context.Context, q *dsecv1.WaitRequest) (*dsecv1.WaitResponse, error) {
	if err := errors.Join(checkSession(q.GetSessionId()), checkPhases("until", q.GetUntil()), checkTimeout("timeout_ms", q.GetTimeoutMs())); err != nil {
		return nil, err
	}
	until := q.GetUntil()
	if len(until) == 0 {
		until = []string{"RUNNING"}
	}
	project, wait := callerOf(ctx).project, ctx
	if ms := q.GetTimeoutMs(); ms > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer cancel()
	}
	got, err := s.cfg.Control.Wait(wait, project, q.GetSessionId(), until...)
	timedOut := err != nil && wait.Err() != nil && ctx.Err() == nil
	if timedOut {
		got, err = s.cfg.Control.Get(ctx, project, q.GetSessionId())
	}
	if err != nil {
		return nil, err
	}
	return &dsecv1.WaitResponse{Session: wireSession(got), TimedOut: timedOut}, nil
}

func (s *sessions) Stop(ctx context.Context, q *dsecv1.StopRequest) (*dsecv1.StopResponse, error) {
	sel, err := selector(q.GetSelector())
	if err == nil {
		err = checkText("reason", q.GetReason(), 512)
	}
	if err != nil {
		return nil, err
	}
	rs, err := s.cfg.Control.Stop(ctx, callerOf(ctx).project, sel, q.GetReason())
	if err != nil {
		return nil, err
	}
	return &dsecv1.StopResponse{Results: wireOutcomes(rs)}, nil
}

func (s *sessions) Suspend(ctx context.Context, q *dsecv1.SuspendRequest) (*dsecv1.SuspendResponse, error) {
	sel, err := selector(q.GetSelector())
	if err != nil {
		return nil, err
	}
	rs, err := s.cfg.Control.Suspend(ctx, callerOf(ctx).project, sel)
	if err != nil {
		return nil, err
	}
	return &dsecv1.SuspendResponse{Results: wireOutcomes(rs)}, nil
}

func (s *sessions) Resume(ctx context.Context, q *dsecv1.ResumeRequest) (*dsecv1.ResumeResponse, error) {
	sel, err := selector(q.GetSelector())
	if err != nil {
		return nil, err
	}
	rs, err := s.cfg.Control.Resume(ctx, callerOf(ctx).project, sel)
	if err != nil {
		return nil, err
	}
	return &dsecv1.ResumeResponse{Results: wireOutcomes(rs)}, nil
}

func (s *sessions) SetDeadline(ctx context.Context, q *dsecv1.SetDeadlineRequest) (*dsecv1.SetDeadlineResponse, error) {
	if err := errors.Join(checkSession(q.GetSessionId()), checkLifetime("lifetime_ms", q.GetLifetimeMs())); err != nil {
		return nil, err
	}
	if s.cfg.Deadlines == nil {
		return nil, errdefs.Userf(errdefs.Unsupported, "deadlines", "stop the session yourself", "this server keeps none")
	}
	got, err := s.cfg.Deadlines.SetDeadline(ctx, callerOf(ctx).project, q.GetSessionId(), control.Deadline{
		Lifetime: time.Duration(q.GetLifetimeMs()) * time.Millisecond, Then: q.GetAtDeadline(), Extend: q.GetExtend(),
	})
	if err != nil {
		return nil, err
	}
	return &dsecv1.SetDeadlineResponse{Session: wireSession(got)}, nil
}

func checkLifetime(field string, ms int64) error {
	if most := control.MaxLifetime.Milliseconds(); ms < 0 || ms > most {
		return bad(field, fmt.Sprintf("use 0 for none, up to %d (366 days)", most), "is %d", ms)
	}
	return nil
}

func (s *sessions) Inspect(ctx context.Context, q *dsecv1.InspectRequest) (*dsecv1.InspectResponse, error) {
	if err := checkSession(q.GetSessionId()); err != nil {
		return nil, err
	}
	in, err := s.cfg.Control.Inspect(ctx, callerOf(ctx).project, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	out := &dsecv1.InspectResponse{Session: wireSession(in.Session)}
	if box, ok := in.Box.(*node.Inspect); ok && box != nil {
		out.Box = wireBox(box)
	}
	return out, nil
}

func (s *sessions) Heartbeat(ctx context.Context, q *dsecv1.HeartbeatRequest) (*dsecv1.HeartbeatResponse, error) {
	if err := checkSession(q.GetSessionId()); err != nil {
		return nil, err
	}
	return &dsecv1.HeartbeatResponse{}, s.cfg.Control.Heartbeat(ctx, callerOf(ctx).project, q.GetSessionId())
}

// selector takes exactly one way of naming sessions.
func selector(q *dsecv1.Selector) (control.Selector, error) {
	sel := control.Selector{IDs: q.GetIds(), Job: q.GetJob(), Labels: q.GetLabels(), Key: q.GetIdempotencyKey(), Lease: q.GetLeaseId(), All: q.GetAll()}
	ways := 0
	for _, set := range []bool{len(sel.IDs) > 0, sel.Job != "", len(sel.Labels) > 0, sel.Key != "", sel.Lease != "", sel.All} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		return sel, bad("selector", "give exactly one of ids, job, labels, idempotency_key, lease_id and all", "names sessions in %d ways", ways)
	}
	if len(sel.IDs) > maxSessions {
		return sel, bad("selector.ids", "give at most 32,768 ids", "has %d ids", len(sel.IDs))
	}
	for _, id := range sel.IDs {
		if err := checkSession(id); err != nil {
			return sel, err
		}
	}
	return sel, errors.Join(checkText("selector.job", sel.Job, 128), checkLabels("selector.labels", sel.Labels), checkText("selector.idempotency_key", sel.Key, 128),
		optionalLease("selector.lease_id", sel.Lease))
}

func checkTimeout(field string, ms int64) error {
	if ms < 0 || ms > maxTimeoutMs {
		return bad(field, "use 0 for none, up to 30 days in milliseconds", "is %d", ms)
	}
	return nil
}
