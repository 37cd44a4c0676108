package integrations

import (
	"context"
	"testing"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// The Go client's leases: sessions outlive a lease in no way.
func TestLeaseOfTheGoClient(t *testing.T) {
	t.Parallel()
	owned := func(t *testing.T, ctx context.Context) (*dsec.Lease, string) {
		t.Helper()
		l, err := server.c.Lease(ctx, dsec.LeaseOptions{TTL: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.c.Create(t.Context(), dsec.CreateOptions{Lease: l.ID()})
		if err != nil {
			t.Fatal(err)
		}
		return l, s.ID()
	}
	t.Run("released", func(t *testing.T) {
		l, id := owned(t, t.Context())
		time.Sleep(4 * time.Second) // it is renewed
		if got := phase(t, id); got != dsec.Running {
			t.Errorf("under a live lease it is %s", got)
		}
		for range 2 {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if got := phase(t, id); got != dsec.Completed {
			t.Errorf("after the release it is %s", got)
		}
	})
	t.Run("ended by another", func(t *testing.T) {
		l, id := owned(t, t.Context())
		if _, err := server.c.Leases.ReleaseLease(t.Context(), &dsecv1.ReleaseLeaseRequest{LeaseId: l.ID()}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Lost():
		case <-time.After(time.Minute):
			t.Error("the owner is not told")
		}
		if got := phase(t, id); got != dsec.Completed {
			t.Errorf("it is %s", got)
		}
	})
	t.Run("silent", func(t *testing.T) {
		ctx, silence := context.WithCancel(t.Context())
		_, id := owned(t, ctx)
		silence()
		eventually(t, "the session of a silent owner to end", func() bool { return phase(t, id) == dsec.Failed })
	})
}
