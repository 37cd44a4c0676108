package session

import "time"

// anew gives the session its whole lifetime, if it has one.
func anew(r Row, now time.Time) Row {
	if r.Lifetime > 0 {
		r.Deadline = now.Add(r.Lifetime)
	}
	return r
}

func setDeadline(r Row, ev SetDeadline) (Row, []Effect, error) {
	switch {
	case r.Desired == WantAudit:
		return r, nil, r.Error
	case !r.Phase.AtLeast(Running):
		return r, nil, illegal(r, ev, "it does not run yet")
	case ev.Lifetime <= 0:
		r.Deadline, r.Lifetime, r.AtDeadline = time.Time{}, 0, ""
		return r, nil, nil
	}
	if ev.Then != "" {
		r.AtDeadline = ev.Then
	} else if r.AtDeadline == "" {
		r.AtDeadline = ActStop
	}
	if !ev.Extend || ev.At.After(r.Deadline) {
		r.Deadline, r.Lifetime = ev.At, ev.Lifetime
	}
	return r, nil, nil
}

func expire(r Row, ev Expire, now time.Time) (Row, []Effect, error) {
	if r.Deadline.IsZero() || r.Deadline.After(now) || r.AtDeadline != ev.Then || r.Phase != Running || r.Desired != WantRunning {
		return r, nil, nil
	}
	why := "its time-out of " + r.Lifetime.String() + " has passed"
	if ev.Then == ActSuspend {
		return suspend(r, Suspend{Reason: why})
	}
	return stop(r, Stop{Reason: why})
}
