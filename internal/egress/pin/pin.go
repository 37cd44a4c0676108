// Package pin remembers which names resolved to which addresses for one box. A connection by name
// is let out only to an address that the box was told for that name: what changes between the answer and the
// connection does not matter.
package pin

import (
	"container/list"
	"net/netip"
	"sync"
)

// Set is safe for concurrent use. Pins live as long as the box: clients keep addresses beyond their
// TTL; what was used least recently goes first when there are too many.
type Set struct {
	most  int
	mu    sync.Mutex
	pairs map[pair]*list.Element
	names map[netip.Addr][]string
	order *list.List // of pair; front: most recently used
}

type pair struct {
	addr netip.Addr
	name string
}

// New holds at most most pins.
func New(most int) *Set {
	return &Set{most: most, pairs: map[pair]*list.Element{}, names: map[netip.Addr][]string{}, order: list.New()}
}

// Add pins the name to addresses.
func (s *Set) Add(name string, addrs ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range addrs {
		p := pair{a, name}
		if e, ok := s.pairs[p]; ok {
			s.order.MoveToFront(e)
			continue
		}
		s.pairs[p] = s.order.PushFront(p)
		s.names[a] = append(s.names[a], name)
		if s.order.Len() > s.most {
			s.drop(s.order.Back())
		}
	}
}

// Names gives the names that are pinned to an address.
func (s *Set) Names(a netip.Addr) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.names[a]
	out := make([]string, len(names))
	copy(out, names)
	for _, n := range names {
		s.order.MoveToFront(s.pairs[pair{a, n}])
	}
	return out
}

// Has tells whether the name is pinned to the address.
func (s *Set) Has(name string, a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.pairs[pair{a, name}]
	return ok
}

// Keep forgets the names for which keep is false.
func (s *Set) Keep(keep func(name string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.order.Front(); e != nil; {
		next := e.Next()
		if !keep(e.Value.(pair).name) {
			s.drop(e)
		}
		e = next
	}
}

// Len counts the pins.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len()
}

func (s *Set) drop(e *list.Element) {
	p := s.order.Remove(e).(pair)
	delete(s.pairs, p)
	names := s.names[p.addr]
	for i, n := range names {
		if n == p.name {
			names = append(names[:i], names[i+1:]...)
			break
		}
	}
	if len(names) == 0 {
		delete(s.names, p.addr)
	} else {
		s.names[p.addr] = names
	}
}
