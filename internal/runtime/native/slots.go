package native

import (
	"hash/fnv"
	"maps"
	"sync"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Each box has a range of host ids of its own: slot i is
// [idBase + i*idCount, idBase + (i+1)*idCount). The last slot stays below 2^31,
// beyond which some tools misread ids.
const (
	idBase  = 100000
	idCount = 65536
	maxSlot = (1<<31 - idBase) / idCount
)

func slotBase(slot int) int { return idBase + slot*idCount }

// slotOf is the inverse; -1 for an id that starts no slot.
func slotOf(base int) int {
	if base < idBase || (base-idBase)%idCount != 0 || (base-idBase)/idCount >= maxSlot {
		return -1
	}
	return (base - idBase) / idCount
}

// slots hands out id ranges. Several nodes on one machine begin at different
// places, so that their boxes have different ids in practice.
type slots struct {
	mu    sync.Mutex
	next  int
	owner map[int]string
}

func newSlots(seed string) *slots {
	h := fnv.New32a()
	h.Write([]byte(seed))
	return &slots{next: int(h.Sum32() % maxSlot), owner: map[int]string{}}
}

// take gives a free slot. Freed ones come back late: what a dead box left
// behind, should anything be left, is nobody's for as long as possible.
func (s *slots) take(id string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range maxSlot {
		slot := s.next
		s.next = (s.next + 1) % maxSlot
		if _, used := s.owner[slot]; !used {
			s.owner[slot] = id
			return slot, nil
		}
	}
	return 0, errdefs.Infraf(errdefs.ScopeNode, errdefs.NodeFull, "id ranges", "all %d are in use", maxSlot)
}

// reserve marks a slot as used by a box that lives; false if another has it.
func (s *slots) reserve(slot int, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, used := s.owner[slot]; used && other != id {
		return false
	}
	s.owner[slot] = id
	return true
}

// free gives back the slot of id.
func (s *slots) free(slot int, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner[slot] == id {
		delete(s.owner, slot)
	}
}

// freeAll gives back what id has, whatever slot that is.
func (s *slots) freeAll(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.owner, func(_ int, owner string) bool { return owner == id })
}
