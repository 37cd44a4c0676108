package guest

import (
	"hash/fnv"
	"io"
	"slices"
	"sync"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// table keeps the ops of a box: exactly one execution per id within its life.
type table[T entry] struct {
	mu      sync.Mutex
	byID    map[string]T
	order   []string               // oldest first
	evicted [2]map[uint64]struct{} // two generations of ids that must not run again
	keep    int                    // settled entries are evicted beyond this many in all
	max     int
}

// entry is what a table keeps.
type entry interface {
	comparable
	// settled tells that the entry has ended and holds nothing but its result.
	settled() bool
	// forget frees what the entry keeps; the id can never be run again.
	forget()
}

// maxEvicted ids are remembered per generation.
const maxEvicted = 1 << 17

func newTable[T entry](keep, max int) *table[T] {
	return &table[T]{byID: map[string]T{}, keep: keep, max: max}
}

// idHash is the same in every life of a guest. Ids are their client's choice, who harms nobody else by two that collide.
func idHash(id string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, id)
	return h.Sum64()
}

// get gives an entry; gone tells that the id was evicted.
func (t *table[T]) get(id string) (e T, ok, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok = t.byID[id]
	return e, ok, !ok && t.wasEvicted(id)
}

func (t *table[T]) wasEvicted(id string) bool {
	h := idHash(id)
	_, a := t.evicted[0][h]
	_, b := t.evicted[1][h]
	return a || b
}

// add adds made under id unless the id is taken or was evicted. full tells that
// too many unfinished entries are there.
func (t *table[T]) add(id string, made T) (e T, created, gone, full bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.byID[id]; ok {
		return e, false, false, false
	}
	if t.wasEvicted(id) {
		return e, false, true, false
	}
	if len(t.byID) >= t.keep && !t.evictLocked() && len(t.byID) >= t.max {
		return e, false, false, true
	}
	t.byID[id] = made
	t.order = append(t.order, id)
	return made, true, false, false
}

// evict drops the oldest settled entry, and tells whether there was one.
func (t *table[T]) evict() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.evictLocked()
}

func (t *table[T]) evictLocked() bool {
	for i, id := range t.order {
		e := t.byID[id]
		if !e.settled() {
			continue
		}
		// Entries before i are unfinished and stay in order.
		copy(t.order[1:i+1], t.order[:i])
		t.order = t.order[1:]
		delete(t.byID, id)
		if len(t.evicted[0]) >= maxEvicted {
			t.evicted[0], t.evicted[1] = nil, t.evicted[0]
		}
		if t.evicted[0] == nil {
			t.evicted[0] = map[uint64]struct{}{}
		}
		t.evicted[0][idHash(id)] = struct{}{}
		e.forget()
		return true
	}
	return false
}

// drop takes an entry out that never ran: its id may be used again.
func (t *table[T]) drop(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, id)
	t.order = slices.DeleteFunc(t.order, func(o string) bool { return o == id })
}

// all gives the entries, oldest first.
func (t *table[T]) all() []T {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]T, 0, len(t.byID))
	for _, id := range t.order {
		list = append(list, t.byID[id])
	}
	return list
}

// restore adds an entry of the life before, in the order of all.
func (t *table[T]) restore(id string, e T) {
	t.byID[id] = e
	t.order = append(t.order, id)
}

// keepEvicted writes the ids that must not run again, the newer generation as the given field and the older as the next.
func (t *table[T]) keepEvicted(e *guestproto.Encoder, field uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, generation := range t.evicted {
		for h := range generation {
			e.Uints(field+uint32(i), []uint64{h})
		}
	}
}

// restoreEvicted reads one of them.
func (t *table[T]) restoreEvicted(generation int, hash uint64) {
	if t.evicted[generation] == nil {
		t.evicted[generation] = map[uint64]struct{}{}
	}
	t.evicted[generation][hash] = struct{}{}
}
