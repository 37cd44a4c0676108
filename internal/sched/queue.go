package sched

import (
	"slices"
	"sort"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Queue is the line of sessions: first in, first out, at most maxActive of them
// active (placed, or being placed) and at most maxWaiting in the line. A session
// that a node refused keeps its place in the line.
type Queue struct {
	maxActive, maxWaiting int
	seq                   uint64
	active                map[string]uint64 // session → ticket
	waiting               []ticket          // by rising number
	number                map[string]uint64 // of those that wait
}

type ticket struct {
	n  uint64
	id string
}

// NewQueue makes a queue. maxActive 0 means no bound; maxWaiting 0 means that nobody may wait.
func NewQueue(maxActive, maxWaiting int) *Queue {
	return &Queue{maxActive: maxActive, maxWaiting: maxWaiting, active: map[string]uint64{}, number: map[string]uint64{}}
}

// Offer takes a new session: position 0 means that it is active and may be
// placed now, n means that it is the n-th in the line. With the line full it is
// refused with queue_full and the queue does not know it. Offering a known session again
// changes nothing.
func (q *Queue) Offer(id string) (position int, err error) {
	if _, ok := q.active[id]; ok {
		return 0, nil
	}
	if p := q.Position(id); p > 0 {
		return p, nil
	}
	// Whoever comes now must not overtake those that wait.
	direct := len(q.waiting) == 0 && q.room()
	if !direct && len(q.waiting) >= q.maxWaiting {
		return 0, q.fullError(id)
	}
	q.seq++
	if direct {
		q.active[id] = q.seq
		return 0, nil
	}
	q.insert(ticket{q.seq, id})
	return len(q.waiting), nil
}

// Readmit takes a session that the queue knew before a restart: it is put in
// line behind the others, whatever the limits say, because it was accepted once.
func (q *Queue) Readmit(id string, active bool) {
	if q.Known(id) {
		return
	}
	q.seq++
	if active {
		q.active[id] = q.seq
		return
	}
	q.insert(ticket{q.seq, id})
}

// Refused puts an active session back into the line, at the place that it had.
func (q *Queue) Refused(id string) (position int) {
	n, ok := q.active[id]
	if !ok {
		return q.Position(id)
	}
	delete(q.active, id)
	q.insert(ticket{n, id})
	return q.Position(id)
}

// Next makes the head of the line active, if there is one and room for it.
func (q *Queue) Next() (id string, ok bool) {
	if len(q.waiting) == 0 || !q.room() {
		return "", false
	}
	t := q.waiting[0]
	q.waiting = q.waiting[1:]
	delete(q.number, t.id)
	q.active[t.id] = t.n
	return t.id, true
}

// Done forgets a session, wherever it is.
func (q *Queue) Done(id string) {
	delete(q.active, id)
	n, ok := q.number[id]
	if !ok {
		return
	}
	delete(q.number, id)
	i := q.index(n)
	q.waiting = slices.Delete(q.waiting, i, i+1)
}

// Position is a session's place in the line, from 1; 0 when it does not wait.
func (q *Queue) Position(id string) int {
	n, ok := q.number[id]
	if !ok {
		return 0
	}
	return q.index(n) + 1
}

// Known tells whether a session is active or waits.
func (q *Queue) Known(id string) bool {
	_, a := q.active[id]
	_, w := q.number[id]
	return a || w
}

// Active and Waiting count.
func (q *Queue) Active() int  { return len(q.active) }
func (q *Queue) Waiting() int { return len(q.waiting) }

func (q *Queue) room() bool { return q.maxActive == 0 || len(q.active) < q.maxActive }

func (q *Queue) insert(t ticket) {
	i := q.index(t.n)
	q.waiting = slices.Insert(q.waiting, i, t)
	q.number[t.id] = t.n
}

func (q *Queue) index(n uint64) int {
	return sort.Search(len(q.waiting), func(i int) bool { return q.waiting[i].n >= n })
}

func (q *Queue) fullError(id string) error {
	e := errdefs.Limitf(errdefs.QueueFull, "session "+id, "send it again later, or raise queue_length or max_active_sessions",
		"it would be number %d in a queue of %d (%d of max_active_sessions %d are active)", len(q.waiting)+1, q.maxWaiting, len(q.active), q.maxActive)
	e.Scope = errdefs.ScopePlatform
	e.Retryable = true
	return e
}
