package api

import "time"

// SetBodyStall shortens the time that a body may stall.
func SetBodyStall(d time.Duration) (undo func()) {
	old := bodyStall
	bodyStall = d
	return func() { bodyStall = old }
}

// SetLinger shortens how long a half-closed connection may be silent.
func SetLinger(d time.Duration) (undo func()) {
	old := linger
	linger = d
	return func() { linger = old }
}

// SetStrangerRate changes what one address may ask for without a right to it. Nobody is counted yet.
func SetStrangerRate(a *API, r Rate) { a.strangers = newLimiter(r) }
