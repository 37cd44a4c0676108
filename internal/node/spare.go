package node

import (
	"context"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// spares are begun boxes of the default runtime that nobody has asked for yet: what no
// request changes is made ahead (see runtime.Preparer). A box that is made cold goes on from one. Unlike a
// pooled box a spare has no template, no file system and no promise of memory; a few serve everybody,
// and when they are used up boxes are begun as they are asked for. Safe for concurrent use.
type spares struct {
	want    int
	created chan struct{} // capacity 1: a create has ended
	freed   chan struct{} // capacity 1: a box is going away

	mu    sync.Mutex
	ready []*box
}

func newSpares(want int) *spares {
	return &spares{want: max(want, 0), created: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
}

// take gives a spare of rt, or nil.
func (s *spares) take(rt runtime.Runtime) *box {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.ready) - 1
	if last < 0 || s.ready[last].rt != rt {
		return nil
	}
	b := s.ready[last]
	s.ready = s.ready[:last]
	return b
}

func (s *spares) add(b *box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, b)
}

func (s *spares) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready)
}

// poke is told when a create has ended. A box that went away before it is of no account then.
func (s *spares) poke() {
	select {
	case <-s.freed:
	default:
	}
	signal(s.created)
}

// vacated is told when a box is going away.
func (s *spares) vacated() { signal(s.freed) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runSpares keeps the spares complete while nobody waits for a box: a burst needs
// the processors itself, and so does the first op of a box.
func (n *Node) runSpares() {
	rt := n.cfg.Runtimes[n.cfg.DefaultRuntime]
	p, ok := rt.(runtime.Preparer)
	if !ok || n.spares.want == 0 {
		return
	}
	for n.ctx.Err() == nil {
		have := n.spares.count()
		switch {
		case n.draining.Load():
			n.endSpares()
		case have >= n.spares.want || len(n.creates) > 0:
		case have > n.spares.want/4 && !n.spares.lull(n.ctx):
			continue // another create has ended meanwhile
		default:
			if err := n.prepare(rt, p); err != nil && n.ctx.Err() == nil {
				n.log.Warn("no spare could be made", "err", err, "retry_in", spareRetry)
				pause(n.ctx, spareRetry)
			}
			continue
		}
		select {
		case <-n.spares.created:
		case <-n.ctx.Done():
		}
	}
}

const (
	spareRetry = 5 * time.Second
	// spareQuiet is how long spares of which there are enough for now stay as they are after a create.
	spareQuiet = 20 * time.Millisecond
)

// lull returns true when a spare may be made without being in the way of a box that has just been made:
// after spareQuiet, or when a box goes away, whose agent is waited for no more. False: another create has ended.
func (s *spares) lull(ctx context.Context) bool {
	t := time.NewTimer(spareQuiet)
	defer t.Stop()
	select {
	case <-s.created:
		return false
	case <-ctx.Done():
		return false
	case <-s.freed:
	case <-t.C:
	}
	return true
}

func (n *Node) prepare(rt runtime.Runtime, p runtime.Preparer) error {
	b := &box{id: n.newBoxID(), rt: rt, begun: true}
	n.mu.Lock()
	n.boxes[b.id] = b
	n.mu.Unlock()
	if err := p.Prepare(n.ctx, b.id); err != nil {
		n.mu.Lock()
		delete(n.boxes, b.id)
		n.mu.Unlock()
		return err
	}
	n.spares.add(b)
	return nil
}

// endSpares reclaims all spares.
func (n *Node) endSpares() {
	n.spares.mu.Lock()
	all := n.spares.ready
	n.spares.ready = nil
	n.spares.mu.Unlock()
	for _, b := range all {
		if err := n.reclaim(context.WithoutCancel(n.ctx), b); err != nil {
			n.log.Warn("a spare could not be removed", "box", b.id, "err", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
