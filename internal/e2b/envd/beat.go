package envd

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// beat sends pings on a stream that is silent for an interval, so that what is between client
// and server does not take it for dead. Sends and pings never overlap.
type beat struct {
	mu    sync.Mutex
	every time.Duration
	ping  func() error
	timer *time.Timer
	over  bool
}

func newBeat(every time.Duration, ping func() error) *beat {
	b := &beat{every: every, ping: ping}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = time.AfterFunc(every, b.fire)
	return b
}

func (b *beat) fire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.ping() != nil { // a client that has gone is noticed by its stream's end
		return
	}
	b.timer.Reset(b.every)
}

// send sends something else than a ping.
func (b *beat) send(f func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := f()
	b.timer.Reset(b.every)
	return err
}

// stop returns when no ping is being sent, and none will be.
func (b *beat) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	b.timer.Stop()
}

// defaultPing is the interval of those who ask for none.
const defaultPing = 90 * time.Second

// pingInterval is how long a stream of this call may be silent.
func pingInterval(ctx context.Context) time.Duration {
	return parseInterval(header(ctx, "Keepalive-Ping-Interval"))
}

func parseInterval(s string) time.Duration {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > 3600 {
		return defaultPing
	}
	return time.Duration(n) * time.Second
}
