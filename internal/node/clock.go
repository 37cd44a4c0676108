package node

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// maxNap bounds how late a clock may be after the machine slept: timers do not
// count that time, boot time does.
const maxNap = 10 * time.Second

// tellAgain is the time between two SuspendedOver of one suspension.
const tellAgain = time.Minute

// idleChecks bounds the guests that are asked at the same time whether they are idle. After a
// restart the idle clocks of all boxes run out together, and a guest that has to wait for
// the machine must not count as silent.
const idleChecks = 32

// clock wakes sessions at boot times. Activity does not touch it: a session that
// is woken early looks at its deadlines and goes back to sleep.
type clock struct {
	boot func() time.Duration
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	heap dueHeap
}

func newClock(boot func() time.Duration) *clock {
	return &clock{boot: boot, wake: make(chan struct{}, 1)}
}

// set wakes s at due, instead of when it was to be woken before.
func (c *clock) set(s *session, due time.Duration) {
	c.mu.Lock()
	s.due = due
	if s.index >= 0 {
		heap.Fix(&c.heap, s.index)
	} else {
		heap.Push(&c.heap, s)
	}
	first := c.heap[0] == s
	c.mu.Unlock()
	if first {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

func (c *clock) remove(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.index >= 0 {
		heap.Remove(&c.heap, s.index)
	}
}

// next pops a session that is due, or says how long to wait.
func (c *clock) next() (*session, time.Duration) {
	now := c.boot()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.heap) == 0 {
		return nil, -1
	}
	if s := c.heap[0]; s.due <= now {
		heap.Pop(&c.heap)
		return s, 0
	}
	return nil, min(c.heap[0].due-now, maxNap)
}

// run calls fire for each session that is due until ctx ends.
func (c *clock) run(ctx context.Context, fire func(*session)) {
	timer := time.NewTimer(maxNap)
	defer timer.Stop()
	for {
		s, wait := c.next()
		if s != nil {
			fire(s)
			continue
		}
		var ring <-chan time.Time
		if wait >= 0 {
			timer.Reset(wait)
			ring = timer.C
		}
		select {
		case <-ring:
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}

type dueHeap []*session

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *dueHeap) Push(x any) {
	s := x.(*session)
	s.index = len(*h)
	*h = append(*h, s)
}
func (h *dueHeap) Pop() any {
	old := *h
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	s.index = -1
	return s
}

func (n *Node) runClock() { n.clock.run(n.ctx, n.due) }

// schedule wakes the session when the first of its clocks may run out.
func (n *Node) schedule(s *session, now time.Duration) {
	idle, over, suspended := s.deadlines(now)
	switch {
	case suspended != 0:
		n.clock.set(s, suspended)
	case idle == 0 && over == 0:
		n.clock.remove(s)
	case over == 0 || idle != 0 && idle < over:
		n.clock.set(s, idle)
	default:
		n.clock.set(s, over)
	}
}

// due looks at a session's clocks. What needs the runtime or the guest happens beside the clock.
func (n *Node) due(s *session) {
	now := n.cfg.boot()
	idle, over, suspended := s.deadlines(now)
	switch {
	case suspended != 0 && suspended <= now:
		_, b := s.current()
		n.emit(Event{Kind: SuspendedOver, Session: s.id, Box: b.id})
		n.clock.set(s, now+tellAgain)
	case over != 0 && over <= now:
		n.wg.Go(func() { n.runtimeOver(s) })
	case idle != 0 && idle <= now && s.touched.Load():
		n.wg.Go(func() { n.checkIdle(s) })
	case idle != 0 && idle <= now:
		n.idleExpired(s, now)
	default:
		n.schedule(s, now)
	}
}

// idleExpired tells the control plane, which decides; if the session is still idle
// another MaxIdle later it is told again.
func (n *Node) idleExpired(s *session, now time.Duration) {
	_, b := s.current()
	n.emit(Event{Kind: IdleExpired, Session: s.id, Box: b.id})
	n.clock.set(s, now+s.maxIdle)
}

// checkIdle asks the guest whether an op runs, or has ended lately, that no client is attached to.
func (n *Node) checkIdle(s *session) {
	if take(n.ctx, n.asking) != nil {
		return
	}
	defer func() { <-n.asking }()
	now := n.cfg.boot()
	last, running, err := n.lastOp(s)
	if err != nil {
		if n.ctx.Err() == nil && errdefs.From(err).Class == errdefs.Infrastructure {
			n.log.Warn("idle clock: the guest could not be asked", "session", s.id, "err", err)
		}
		n.clock.set(s, now+s.maxIdle)
		return
	}
	if running {
		last = now
	}
	for {
		seen := s.last.Load()
		if int64(last) <= seen || s.last.CompareAndSwap(seen, int64(last)) {
			break
		}
	}
	if idle, _, _ := s.deadlines(now); idle == 0 || idle > now {
		n.schedule(s, now)
		return
	}
	n.idleExpired(s, now)
}

// lastOp gives the boot time at which the last op ended, and whether one runs. Ops in the
// background do not count.
func (n *Node) lastOp(s *session) (last time.Duration, running bool, err error) {
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.GuestTimeout)
	defer cancel()
	state, b := s.current()
	if state != Live {
		return 0, false, nil
	}
	s.asking.Add(1)
	defer s.asking.Add(-1)
	g, err := n.dialGuest(ctx, s, b)
	if err != nil {
		return 0, false, err
	}
	ops, err := g.List(ctx)
	if err != nil && ctx.Err() != nil && n.ctx.Err() == nil {
		err = n.guestFault(s, b, err) // connected, and silent
	}
	if err != nil {
		return 0, false, err
	}
	boot, wall := n.cfg.boot(), time.Now()
	for _, op := range ops {
		if op.Running && !op.Background {
			return 0, true, nil
		}
		if end, ok := opEnd(&op); ok {
			// A guest that claims an end in the future gets none: it ended now.
			last = max(last, boot-max(wall.Sub(end), 0))
		}
	}
	return last, false, nil
}

func opEnd(op *guestproto.OpInfo) (time.Time, bool) {
	if op.Running || op.Background || op.Result == nil {
		return time.Time{}, false
	}
	return time.Unix(0, op.StartedUnix).Add(time.Duration(op.Result.WallMs * float64(time.Millisecond))), true
}
