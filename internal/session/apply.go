package session

import (
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Apply gives the row after ev and what has to be done. An event that was
// delivered before, or that came too late to matter, changes nothing and asks for
// nothing. An event that must not happen in this state is a *errdefs.Error with
// reason conflict, and the row that is returned is r.
func Apply(r Row, ev Event, now time.Time) (Row, []Effect, error) {
	next, effects, err := step(r, ev, now)
	if err != nil {
		return r, nil, err
	}
	if next == r {
		return r, nil, nil
	}
	next.Version++
	next.Updated = now
	if next.Started.IsZero() && next.Phase == Running {
		next.Started = now
	}
	if next.Phase.Terminal() {
		next.Ended = now
		effects = append(effects, Finished)
	}
	return next, effects, nil
}

func step(r Row, ev Event, now time.Time) (Row, []Effect, error) {
	switch ev := ev.(type) {
	case Stop:
		return stop(r, ev)
	case Fail:
		return fail(r, ev.Err)
	case Reclaimed:
		return reclaimed(r)
	case Fence:
		return fence(r, ev.Err)
	case Expire:
		return expire(r, ev, now)
	}
	// What follows is about a life that goes on.
	if r.Phase.Terminal() || r.Desired == WantStopped {
		return r, nil, illegal(r, ev, "it ends")
	}
	switch ev := ev.(type) {
	case Place:
		return place(r, ev)
	case Refuse:
		return refuse(r, ev)
	case Start:
		return start(r, ev, now)
	case Suspend:
		return suspend(r, ev)
	case Resume:
		return resume(r, ev, now)
	case Frozen:
		return frozen(r, ev)
	case Thawed:
		return thawed(r, ev)
	case Audit:
		return audit(r, ev)
	case SetDeadline:
		return setDeadline(r, ev)
	}
	return r, nil, illegal(r, ev, "nobody knows this event")
}

func place(r Row, ev Place) (Row, []Effect, error) {
	switch {
	case r.Phase == Pending:
		r.Phase, r.Node, r.Reason = Scheduled, ev.Node, ""
		return r, []Effect{CreateBox}, nil
	case r.Node == ev.Node:
		return r, nil, nil
	}
	return r, nil, illegal(r, ev, "it is on node "+r.Node)
}

func refuse(r Row, ev Refuse) (Row, []Effect, error) {
	switch r.Phase {
	case Pending:
		return r, nil, nil
	case Scheduled:
		r.Phase, r.Node, r.Reason = Pending, "", ev.Reason
		return r, []Effect{Enqueue}, nil
	}
	return r, nil, illegal(r, ev, "it has a box")
}

func start(r Row, ev Start, now time.Time) (Row, []Effect, error) {
	switch {
	case ev.Box == "":
		return r, nil, illegal(r, ev, "the box has no id")
	case r.Phase == Scheduled:
		r.Phase, r.Box, r.Pooled, r.ColdReason, r.Reason = Running, ev.Box, ev.Pooled, ev.ColdReason, ""
		return anew(r, now), nil, nil
	case r.Box == ev.Box:
		return r, nil, nil
	case r.Box == "":
		return r, nil, illegal(r, ev, "it was not placed")
	}
	return r, nil, illegal(r, ev, "it has box "+r.Box+" already")
}

func suspend(r Row, ev Suspend) (Row, []Effect, error) {
	switch {
	case r.Desired == WantAudit:
		return r, nil, nil // silenced for good
	case r.Phase == Running && r.Desired == WantRunning:
		r.Desired, r.Reason = WantSuspended, ev.Reason
		return r, []Effect{FreezeBox}, nil
	case r.Phase == Suspended && r.Desired == WantRunning: // a resume is under way
		r.Desired, r.Reason = WantSuspended, ev.Reason
		return r, []Effect{FreezeBox}, nil
	case r.Desired == WantSuspended:
		return r, nil, nil
	}
	return r, nil, illegal(r, ev, "it has no box yet")
}

func resume(r Row, ev Resume, now time.Time) (Row, []Effect, error) {
	switch {
	case r.Desired == WantAudit:
		return r, nil, r.Error
	case r.Desired == WantSuspended:
		r.Desired, r.Reason = WantRunning, ""
		if !r.Deadline.After(now) {
			r = anew(r, now)
		}
		return r, []Effect{ThawBox}, nil
	case r.Phase == Running || r.Phase == Suspended:
		return r, nil, nil
	}
	return r, nil, illegal(r, ev, "it has no box yet")
}

func frozen(r Row, ev Frozen) (Row, []Effect, error) {
	switch {
	case r.Desired == WantSuspended && r.Phase == Running:
		r.Phase = Suspended
		return r, nil, nil
	case r.Phase == Running || r.Phase == Suspended:
		return r, nil, nil // overtaken by a resume, or heard before
	}
	return r, nil, illegal(r, ev, "it has no box yet")
}

func thawed(r Row, ev Thawed) (Row, []Effect, error) {
	switch {
	case r.Desired == WantRunning && r.Phase == Suspended:
		r.Phase = Running
		return r, nil, nil
	case r.Phase == Running || r.Phase == Suspended:
		return r, nil, nil // overtaken by a suspend or the audit, or heard before
	}
	return r, nil, illegal(r, ev, "it has no box yet")
}

func audit(r Row, ev Audit) (Row, []Effect, error) {
	switch {
	case r.Desired == WantAudit:
		return r, nil, nil
	case r.Phase == Running || r.Phase == Suspended:
		r.Phase, r.Desired, r.Reason = Suspended, WantAudit, "audit: "+ev.Err.Message
		r.Error = ev.Err
		return r, nil, nil
	}
	return r, nil, illegal(r, ev, "it has no box yet")
}

func stop(r Row, ev Stop) (Row, []Effect, error) {
	if r.Phase.Terminal() || r.Desired == WantStopped {
		return r, nil, nil
	}
	if r.Started.IsZero() && r.Error == nil {
		r.Error = errdefs.Userf(errdefs.Canceled, "session "+r.ID, "create it again", "it was stopped before it ran")
	}
	return end(r, ev.Reason)
}

func fail(r Row, verdict *errdefs.Error) (Row, []Effect, error) {
	if r.Phase.Terminal() || r.Desired == WantStopped {
		return r, nil, nil // the first verdict stands
	}
	if r.Error == nil {
		r.Error = verdict
	}
	return end(r, r.Error.Message)
}

// end decides the end. Without a placement there is nothing to reclaim.
func end(r Row, reason string) (Row, []Effect, error) {
	r.Desired, r.Reason = WantStopped, reason
	if r.Phase == Pending {
		r.Reclaim = ReclaimAcked
		r.Phase = outcome(r)
		return r, nil, nil
	}
	r.Reclaim = ReclaimPending
	return r, []Effect{DestroyBox}, nil
}

func reclaimed(r Row) (Row, []Effect, error) {
	switch r.Reclaim {
	case ReclaimAcked, ReclaimFenced:
		return r, nil, nil
	case ReclaimPending:
		r.Reclaim = ReclaimAcked
		r.Phase = outcome(r)
		return r, nil, nil
	}
	return r, nil, illegal(r, Reclaimed{}, "nobody asked for its end")
}

func fence(r Row, verdict *errdefs.Error) (Row, []Effect, error) {
	switch {
	case r.Phase.Terminal():
		return r, nil, nil
	case r.Phase == Pending:
		return r, nil, illegal(r, Fence{}, "it is on no node")
	}
	if r.Desired != WantStopped && r.Error == nil {
		r.Error = verdict
	}
	if r.Desired != WantStopped {
		r.Reason = r.Error.Message
	}
	r.Desired, r.Reclaim = WantStopped, ReclaimFenced
	r.Phase = outcome(r)
	return r, nil, nil
}

func outcome(r Row) Phase {
	if r.Error != nil {
		return Failed
	}
	return Completed
}

func illegal(r Row, ev Event, why string) error {
	return errdefs.Userf(errdefs.Conflict, "session "+r.ID, "look at its phase first",
		"%s is not possible while it is %s (desired %s, reclaim %s): %s", ev.event(), r.Phase, r.Desired, r.Reclaim, why)
}
