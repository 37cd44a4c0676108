package node

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// Shared is what the creates of one request have in common: the first that needs it works it out for
// all. The zero value is ready; it may be shared by creates with the same Network and Preflight alone.
type Shared struct {
	mu      sync.Mutex
	phases  *policy.Phases
	encoded json.RawMessage // of phases, for the journal
	look    *look           // the newest
}

// lookFresh is for how long what a preflight found may be given to further boxes.
const lookFresh = 5 * time.Second

// look is one preflight, under way or done.
type look struct {
	done   chan struct{}
	cancel context.CancelFunc

	waiting int // who asked and has not got it; guarded by Shared.mu
	found   []egress.Preflight
	err     error
	at      time.Time // when it was done
}

// encode gives the journal's form of the request's network.
func (s *Shared) encode(phases *policy.Phases) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.encoded != nil && s.phases == phases {
		return s.encoded, nil
	}
	b, err := encodePhases(phases)
	if err != nil {
		return nil, err
	}
	s.phases, s.encoded = phases, b
	return b, nil
}

// join begins a preflight, or joins one under way or done lately. A failure is told to those who
// waited for it, and whoever comes later tries again. It ends with the last of those who wait.
func (s *Shared) join(n *Node, run func(ctx context.Context) ([]egress.Preflight, error)) *look {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.look; l != nil {
		switch {
		case !over(l.done) && l.waiting > 0:
			l.waiting++
			return l
		case over(l.done) && l.err == nil && time.Since(l.at) < lookFresh:
			l.waiting++
			return l
		}
	}
	l := &look{done: make(chan struct{}), waiting: 1}
	ctx, cancel := context.WithCancel(n.ctx)
	l.cancel = cancel
	s.look = l
	n.wg.Go(func() {
		defer cancel()
		l.found, l.err = run(ctx)
		l.at = time.Now()
		close(l.done)
	})
	return l
}

// leave is called once by each who joined.
func (s *Shared) leave(l *look) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.waiting--; l.waiting == 0 && !over(l.done) {
		l.cancel()
	}
}
