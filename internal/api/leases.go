package api

import (
	"context"
	"errors"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/session"
)

// leases serves LeaseService.
type leases struct{ *API }

// Bounds of a lease's ttl in milliseconds: shorter ones would expire by a busy network alone.
const (
	minTTL = 1_000
	maxTTL = 24 * 60 * 60 * 1_000
)

func (s *leases) CreateLease(ctx context.Context, q *dsecv1.CreateLeaseRequest) (*dsecv1.CreateLeaseResponse, error) {
	if err := checkText("idempotency_key", q.GetIdempotencyKey(), 128); err != nil {
		return nil, err
	}
	if ms := q.GetTtlMs(); ms != 0 && (ms < minTTL || ms > maxTTL) {
		return nil, bad("ttl_ms", "use 1,000 (a second) to 86,400,000 (a day), or 0 for 30,000", "is %d", ms)
	}
	switch q.GetOnExpiry() {
	case "", control.StopSessions, control.SuspendSessions:
	default:
		return nil, bad("on_expiry", "use stop or suspend", "%q is neither", clip(q.GetOnExpiry()))
	}
	l, err := s.cfg.Leases.CreateLease(ctx, callerOf(ctx).project, control.LeaseRequest{
		Key: q.GetIdempotencyKey(), TTL: time.Duration(q.GetTtlMs()) * time.Millisecond, OnExpiry: q.GetOnExpiry(),
	})
	if err != nil {
		return nil, err
	}
	return &dsecv1.CreateLeaseResponse{Lease: wireLease(l)}, nil
}

func (s *leases) RenewLease(ctx context.Context, q *dsecv1.RenewLeaseRequest) (*dsecv1.RenewLeaseResponse, error) {
	if err := checkLease("lease_id", q.GetLeaseId()); err != nil {
		return nil, err
	}
	revived, err := s.cfg.Leases.RenewLease(ctx, callerOf(ctx).project, q.GetLeaseId())
	if err != nil {
		return nil, err
	}
	return &dsecv1.RenewLeaseResponse{Revived: revived}, nil
}

func (s *leases) ReleaseLease(ctx context.Context, q *dsecv1.ReleaseLeaseRequest) (*dsecv1.ReleaseLeaseResponse, error) {
	if err := checkLease("lease_id", q.GetLeaseId()); err != nil {
		return nil, err
	}
	n, err := s.cfg.Leases.ReleaseLease(ctx, callerOf(ctx).project, q.GetLeaseId(), q.GetKeepSessions())
	if err != nil {
		return nil, err
	}
	return &dsecv1.ReleaseLeaseResponse{Sessions: int32(n)}, nil
}

func (s *leases) GetLease(ctx context.Context, q *dsecv1.GetLeaseRequest) (*dsecv1.GetLeaseResponse, error) {
	if err := checkLease("lease_id", q.GetLeaseId()); err != nil {
		return nil, err
	}
	l, err := s.cfg.Leases.GetLease(ctx, callerOf(ctx).project, q.GetLeaseId())
	if err != nil {
		return nil, err
	}
	return &dsecv1.GetLeaseResponse{Lease: wireLease(l)}, nil
}

// checkLease takes what CreateLease answered.
func checkLease(field, id string) error {
	ok := len(id) == session.IDLen
	for i := 0; i < len(id) && ok; i++ {
		ok = id[i] >= '0' && id[i] <= '9' || id[i] >= 'a' && id[i] <= 'z'
	}
	if !ok {
		return bad(field, "give the id that CreateLease answered, 26 characters [a-z0-9]", "%q is not a lease's id", clip(id))
	}
	return nil
}

// optionalLease is checkLease where none may be given.
func optionalLease(field, id string) error {
	if id == "" {
		return nil
	}
	return checkLease(field, id)
}

func wireLease(l *control.Lease) *dsecv1.Lease {
	state := l.Ending
	if state == "" {
		state = "live"
	}
	return &dsecv1.Lease{
		Id: l.ID, Project: l.Project, TtlMs: l.TTL.Milliseconds(), OnExpiry: l.OnExpiry, State: state,
		Created: wireTime(l.Created), Ended: wireTime(l.Ended), Sessions: int32(l.Sessions),
	}
}

// checkList bounds what a List filters by.
func checkList(q *dsecv1.ListRequest) error {
	return errors.Join(checkPhases("phases", q.GetPhases()), checkText("job", q.GetJob(), 128), checkLabels("labels", q.GetLabels()),
		optionalLease("lease_id", q.GetLeaseId()), checkText("page_token", q.GetPageToken(), 512))
}
