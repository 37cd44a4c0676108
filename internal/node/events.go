package node

import (
	"sync"
	"time"
)

// eventQueue takes events without ever blocking and hands them to one reader in
// order. It is bounded by what can happen: a box has few events, and runtimes bound theirs.
type eventQueue struct {
	out  chan Event
	wake chan struct{} // capacity 1
	quit chan struct{}
	once sync.Once

	mu   sync.Mutex
	line []Event
}

func newEventQueue() *eventQueue {
	return &eventQueue{out: make(chan Event), wake: make(chan struct{}, 1), quit: make(chan struct{})}
}

func (q *eventQueue) put(e Event) {
	q.mu.Lock()
	q.line = append(q.line, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run hands events over until stop, then closes the channel.
func (q *eventQueue) run() {
	defer close(q.out)
	for {
		q.mu.Lock()
		line := q.line
		q.line = nil
		q.mu.Unlock()
		for _, e := range line {
			select {
			case q.out <- e:
			case <-q.quit:
				return
			}
		}
		if len(line) > 0 {
			continue
		}
		select {
		case <-q.wake:
		case <-q.quit:
			return
		}
	}
}

func (q *eventQueue) stop() { q.once.Do(func() { close(q.quit) }) }

// Events implements API. The channel is closed by Close.
func (n *Node) Events() <-chan Event { return n.events.out }

func (n *Node) emit(e Event) {
	e.Time = time.Now()
	n.metrics.event(e.Kind)
	n.events.put(e)
}
