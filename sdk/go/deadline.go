package dsec

import (
	"context"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// Deadline is a session's end as its client sets it.
type Deadline struct {
	// In is how far away it is, from now: a second to 366 days; zero: no deadline any more.
	In time.Duration
	// Then is what is done: "stop" or "suspend"; empty: as it was, "stop" at first.
	Then string
	// Extend moves it only to later.
	Extend bool
}

// SetDeadline moves the end of a session that runs or is suspended, where it acts when the session
// is resumed. When it returns nil, the earlier deadline has not acted and never will. One that passes while the
// server is down acts at its start.
func (s *Session) SetDeadline(ctx context.Context, d Deadline) error {
	q := &dsecv1.SetDeadlineRequest{SessionId: s.id, LifetimeMs: ceilMs(d.In), AtDeadline: d.Then, Extend: d.Extend}
	r, err := call(ctx, s.c, true, s.c.Sessions.SetDeadline, q)
	s.heard(r.GetSession())
	return err
}
