package control

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/session"
)

// idSource gives session ids that rise strictly within this process.
type idSource struct {
	mu   sync.Mutex
	last time.Time
}

func (s *idSource) next(now time.Time) (id string, at time.Time) {
	at = now.Truncate(time.Microsecond)
	s.mu.Lock()
	if !at.After(s.last) {
		at = s.last.Add(time.Microsecond)
	}
	s.last = at
	s.mu.Unlock()
	var entropy [9]byte
	_, _ = rand.Read(entropy[:]) // it never fails
	return session.NewID(at, entropy), at
}
