package api

import "time"

// SetBodyStall shortens the time that a body may stall.
func SetBodyStall(d time.Duration) (undo func()) {
	old := bodyStall
	bodyStall = d
	return func() { bodyStall = old }
}
