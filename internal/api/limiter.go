package api

import (
	"container/list"
	"sync"

	"golang.org/x/time/rate"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Rate bounds the requests of each project.
type Rate struct {
	PerSecond float64
	Burst     int
}

// DefaultRate is far above what one project reaches in honest use of one machine.
var DefaultRate = Rate{PerSecond: 20_000, Burst: 40_000}

// limitedProjects bounds the limiter's memory. A project that falls out starts
// again with a full burst, which costs more projects than a caller can have.
const limitedProjects = 4096

// limiter is one token bucket a project, the least recently used ones dropped.
type limiter struct {
	rate Rate

	mu    sync.Mutex
	at    map[string]*list.Element
	order list.List // of *bucket, most recently used first
}

type bucket struct {
	project string
	tokens  *rate.Limiter
}

func newLimiter(r Rate) *limiter {
	if r.PerSecond <= 0 {
		r = DefaultRate
	}
	return &limiter{rate: Rate{r.PerSecond, max(r.Burst, 1)}, at: map[string]*list.Element{}}
}

// allow takes a token of project, or says rate_limited.
func (l *limiter) allow(project string) error {
	l.mu.Lock()
	e := l.at[project]
	if e == nil {
		e = l.order.PushFront(&bucket{project, rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)})
		l.at[project] = e
		if l.order.Len() > limitedProjects {
			old := l.order.Remove(l.order.Back()).(*bucket)
			delete(l.at, old.project)
		}
	} else if l.order.Front() != e {
		l.order.MoveToFront(e)
	}
	b := e.Value.(*bucket)
	l.mu.Unlock()
	if b.tokens.Allow() {
		return nil
	}
	err := errdefs.Limitf(errdefs.RateLimited, "project "+project, "send fewer requests, or create many sessions with one request's count", "more than %g requests a second", l.rate.PerSecond)
	err.Scope, err.Retryable = errdefs.ScopePlatform, true
	return err
}
