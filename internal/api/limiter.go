package api

import (
	"container/list"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Rate bounds the requests of each project.
type Rate struct {
	PerSecond float64
	Burst     int
}

// DefaultRate is far above what one project reaches in honest use of one machine.
var DefaultRate = Rate{PerSecond: 20_000, Burst: 40_000}

// strangerRate bounds the requests of one address that show nothing that is good: no key, no token. It is
// what a site behind a public port may have of visitors that come by one proxy.
var strangerRate = Rate{PerSecond: 2_000, Burst: 4_000}

// maxBuckets bounds a limiter's memory. Who falls out starts
// again with a full burst, which costs more projects than a caller can have.
const maxBuckets = 4096

// limiter is one token bucket a project or address, the least recently used ones dropped.
type limiter struct {
	rate Rate

	mu    sync.Mutex
	at    map[string]*list.Element // by object
	order list.List                // of *bucket, most recently used first
}

type bucket struct {
	object string // "project x"
	tokens *rate.Limiter
}

func newLimiter(r Rate) *limiter {
	if r.PerSecond <= 0 {
		r = DefaultRate
	}
	return &limiter{rate: Rate{r.PerSecond, max(r.Burst, 1)}, at: map[string]*list.Element{}}
}

// allow takes a token of an object, or says rate_limited.
func (l *limiter) allow(object string) error {
	l.mu.Lock()
	e := l.at[object]
	if e == nil {
		e = l.order.PushFront(&bucket{object, rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)})
		l.at[object] = e
		if l.order.Len() > maxBuckets {
			old := l.order.Remove(l.order.Back()).(*bucket)
			delete(l.at, old.object)
		}
	} else if l.order.Front() != e {
		l.order.MoveToFront(e)
	}
	b := e.Value.(*bucket)
	l.mu.Unlock()
	if b.tokens.Allow() {
		return nil
	}
	err := errdefs.Limitf(errdefs.RateLimited, object, "send fewer requests, or create many sessions with one request's count", "more than %g requests a second", l.rate.PerSecond)
	err.Scope, err.Retryable = errdefs.ScopePlatform, true
	return err
}

// allowStranger takes a request from the rate of the address that r comes from.
func (a *API) allowStranger(r *http.Request) error {
	return a.strangers.allow("address " + addressOf(r.RemoteAddr))
}

// addressOf is whose rate a connection counts for: an IPv4 address, or the /64 of an IPv6 one, which is what one
// customer has. A unix socket has none.
func addressOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return "of the machine itself"
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	p, _ := ip.Prefix(64) // it has that many bits
	return p.String()
}

// maxLarge bounds the bytes of all large request messages in memory at a time;
// one that is smaller than smallMessage is not counted.
const (
	maxLarge     = 1 << 30
	smallMessage = 1 << 20
)

// largeBodies counts the creates that carry code: their messages are held whole.
type largeBodies struct{ bytes atomic.Int64 }

// size is what a request may hold; 0 when it is small.
func (l *largeBodies) size(r *http.Request) int64 {
	switch p := r.URL.Path; {
	case p != dsecv1connect.SessionServiceCreateProcedure && p != dsecv1connect.SessionServiceCreateStreamProcedure:
		return 0
	case r.ContentLength < 0, packed(r.Header):
		return int64(maxRequest(p)) // it says its size only when it is read
	case r.ContentLength < smallMessage:
		return 0
	}
	return min(r.ContentLength, int64(maxRequest(r.URL.Path)))
}

func (l *largeBodies) take(n int64) error {
	if n == 0 || l.bytes.Add(n) <= maxLarge {
		return nil
	}
	l.bytes.Add(-n)
	err := errdefs.Limitf(errdefs.RateLimited, "request body", "send it again later, or put the code in by PUT /v1/sessions/{id}/tar", "too many large requests are in flight")
	err.Scope, err.Retryable = errdefs.ScopePlatform, true
	return err
}

func (l *largeBodies) give(n int64) { l.bytes.Add(-n) }
