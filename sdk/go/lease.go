package dsec

import (
	"context"
	"sync"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// Lease owns sessions on behalf of this process: when it dies, however it dies,
// the server stops the sessions that were made with the lease.
type Lease struct {
	c   *Client
	id  string
	ttl time.Duration

	stop func() // ends the renewing
	lost chan struct{}
	wg   sync.WaitGroup
}

// LeaseOptions of Client.Lease.
type LeaseOptions struct {
	// TTL is how long the process may be silent; zero: the server's default of 30 s.
	TTL time.Duration
	// Suspend the sessions of a silent owner instead of stopping them.
	Suspend bool
}

// Lease makes a lease and renews it until it is released or ctx ends. Sessions
// belong to it whose CreateOptions name its ID.
func (c *Client) Lease(ctx context.Context, o LeaseOptions) (*Lease, error) {
	q := &dsecv1.CreateLeaseRequest{IdempotencyKey: newOpID(), TtlMs: ceilMs(o.TTL)}
	if o.Suspend {
		q.OnExpiry = "suspend"
	}
	r, err := call(ctx, c, true, c.Leases.CreateLease, q)
	if err != nil {
		return nil, err
	}
	l := &Lease{c: c, id: r.GetLease().GetId(), ttl: time.Duration(r.GetLease().GetTtlMs()) * time.Millisecond, lost: make(chan struct{})}
	ctx, l.stop = context.WithCancel(ctx)
	l.wg.Go(func() { l.renew(ctx) })
	return l, nil
}

// ID names the lease in CreateOptions.
func (l *Lease) ID() string { return l.id }

// Lost is closed when the server has ended the lease: its sessions have been stopped, or
// are being.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Release stops the lease's sessions and returns when nothing of them is left. Idempotent.
func (l *Lease) Release(ctx context.Context) error {
	_, err := call(ctx, l.c, true, l.c.Leases.ReleaseLease, &dsecv1.ReleaseLeaseRequest{LeaseId: l.id})
	l.stop() // not before: sessions are owned until they are gone
	l.wg.Wait()
	return err
}

func (l *Lease) renew(ctx context.Context) {
	t := time.NewTicker(max(l.ttl/3, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		// One attempt that hangs must not take the time of the next.
		one, cancel := context.WithTimeout(ctx, l.ttl/3)
		_, err := call(one, l.c, true, l.c.Leases.RenewLease, &dsecv1.RenewLeaseRequest{LeaseId: l.id})
		cancel()
		if over(err) {
			close(l.lost)
			return
		}
	}
}

// over tells whether the server does not take the lease for live any more.
func over(err error) bool {
	return IsReason(err, "owner_lost") || IsReason(err, "conflict") || IsReason(err, "not_found")
}
