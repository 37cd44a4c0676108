package e2e

import (
	"testing"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// A daemon that was away for longer than a lease's ttl has not heard its owner, and takes
// nothing from him; an owner who is silent then loses his sessions in time.
func TestLeaseOutlivesAnAbsentDaemon(t *testing.T) {
	e := startOwn(t, "--no-pool")
	const ttl = 3 * time.Second
	r, err := e.c.Leases.CreateLease(t.Context(), &dsecv1.CreateLeaseRequest{TtlMs: ttl.Milliseconds()})
	if err != nil {
		t.Fatal(dsec.AsError(err))
	}
	id := r.GetLease().GetId()
	made, err := e.c.CreateN(t.Context(), 5, dsec.CreateOptions{Lease: id}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Kill()
	time.Sleep(ttl + time.Second)
	e.again(t)
	back := time.Now()
	for _, m := range made {
		if phase, why := phaseOf(t, m.Session); phase != dsec.Running {
			t.Fatalf("it is %s: %v", phase, why)
		}
	}
	for _, m := range made {
		i, err := m.Session.Wait(t.Context(), dsec.Failed)
		if err != nil || i.GetError().GetReason() != "owner_lost" || i.GetReclaim() != "acked" {
			t.Fatalf("%v %v", i, err)
		}
	}
	if took := time.Since(back); took < ttl-time.Second || took > patience(ttl+5*time.Second) {
		t.Errorf("they were gone after %v", took)
	}
	if _, err := e.c.Leases.RenewLease(t.Context(), &dsecv1.RenewLeaseRequest{LeaseId: id}); !dsec.IsReason(dsec.AsError(err), "owner_lost") {
		t.Errorf("renewed: %v", err)
	}
}

// What a lease cannot be is refused by name.
func TestLeasesThatCannotBe(t *testing.T) {
	for field, q := range map[string]*dsecv1.CreateLeaseRequest{
		"field ttl_ms":    {TtlMs: 10},
		"field on_expiry": {OnExpiry: "explode"},
	} {
		_, err := shared.c.Leases.CreateLease(t.Context(), q)
		if e, ok := dsec.AsError(err).(*dsec.Error); !ok || e.Reason != "invalid_argument" || e.Object != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := shared.c.Leases.GetLease(t.Context(), &dsecv1.GetLeaseRequest{LeaseId: "x"}); !dsec.IsReason(dsec.AsError(err), "invalid_argument") {
		t.Errorf("a lease named x: %v", err)
	}
	for _, lease := range []string{"x", "l1k1g3qpcdzf0addvt3tqn7q3p"} {
		if s, err := shared.c.Create(t.Context(), dsec.CreateOptions{Lease: lease}); err == nil {
			t.Errorf("a session of lease %s: %v", lease, s.ID())
		}
	}
}
