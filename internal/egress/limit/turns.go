package limit

import "sync"

// Turns shares the work of moving bytes between boxes: at most some chunks are moved at once, and
// boxes that wait take turns, however many connections each of them has. Who finds a free place does not wait.
type Turns struct {
	mu    sync.Mutex
	free  int
	queue []*Turn // boxes with waiters, in the order of their turns
}

// NewTurns lets width chunks be moved at once.
func NewTurns(width int) *Turns { return &Turns{free: width} }

// Turn is one box's place in the order. Make it with Join.
type Turn struct {
	t       *Turns
	waiting []chan struct{}
	queued  bool
}

// Join adds a box.
func (t *Turns) Join() *Turn { return &Turn{t: t} }

// Begin waits for the box's turn; every Begin is followed by one End. Between them stands work that
// does not block.
func (u *Turn) Begin() {
	t := u.t
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return
	}
	ch := make(chan struct{})
	u.waiting = append(u.waiting, ch)
	if !u.queued {
		u.queued = true
		t.queue = append(t.queue, u)
	}
	t.mu.Unlock()
	<-ch
}

// End gives the turn to the box that waits longest for one.
func (u *Turn) End() {
	t := u.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		t.free++
		return
	}
	next := t.queue[0]
	t.queue = t.queue[1:]
	ch := next.waiting[0]
	if next.waiting = next.waiting[1:]; len(next.waiting) > 0 {
		t.queue = append(t.queue, next)
	} else {
		next.queued, next.waiting = false, nil
	}
	close(ch)
}
