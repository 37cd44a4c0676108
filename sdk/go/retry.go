package dsec

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"connectrpc.com/connect/v2"
)

// call makes one unary call as retry does.
func call[Q, R any](ctx context.Context, c *Client, safe bool, f func(context.Context, *Q) (*R, error), q *Q) (*R, error) {
	return retry(ctx, c, safe, func(ctx context.Context) (*R, error) { return f(ctx, q) })
}

// retry makes a call and repeats it while that is safe and useful: a call that
// never arrived always, one whose connection broke only when repeating it has no
// second effect (safe), and one that the server put off (rate_limited, unavailable).
func retry[R any](ctx context.Context, c *Client, safe bool, f func(context.Context) (R, error)) (R, error) {
	var until time.Time
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		cctx, info := connect.NewClientContext(ctx)
		r, err := f(cctx)
		if err == nil {
			return r, nil
		}
		err = withRetryAfter(AsError(err), info)
		now := time.Now()
		if until.IsZero() {
			until = now.Add(c.retryFor)
		}
		d := max(wait/2+rand.N(wait), retryAfter(err))
		if ctx.Err() != nil || !repeatable(err, safe) || now.Add(d).After(until) {
			return r, err
		}
		t := time.NewTimer(d)
		select {
		case <-ctx.Done():
			t.Stop()
			return r, err
		case <-t.C:
		}
	}
}

func repeatable(err error, safe bool) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return false
	}
	if e.unreached {
		return true
	}
	if e.lost {
		return safe
	}
	return e.Retryable && (e.Reason == "rate_limited" || safe && e.Reason == "unavailable")
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

func withRetryAfter(err error, info *connect.CallInfo) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	if s, err := strconv.Atoi(info.ResponseHeader().Get("Retry-After")); err == nil {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// newOpID makes an operation id that no other client makes.
func newOpID() string {
	const digits = "0123456789abcdefghijklmnopqrstuv"
	var b [26]byte
	for i := 0; i < len(b); i += 12 {
		r := rand.Uint64()
		for j := i; j < min(i+12, len(b)); j++ {
			b[j] = digits[r&31]
			r >>= 5
		}
	}
	return string(b[:])
}
