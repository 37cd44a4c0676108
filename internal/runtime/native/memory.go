package native

import (
	"time"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// warnAt are the percentages of the memory limit that are told.
var warnAt = []int{80, 95}

const (
	// calm is the percentage below which a warning may be told again.
	calm = 75
	// hotInterval is how often a box above calm is looked at.
	hotInterval = 250 * time.Millisecond
	// minRound is how often all boxes are looked at, at most.
	minRound = time.Second
	// perBox stretches the round on a full node, so that it costs 1 % of a core at most.
	perBox = 500 * time.Microsecond
)

// memoryState is what was told of a box's memory; guarded by the box's mutex.
type memoryState struct {
	kills  int64
	warned int // highest percentage told since usage was calm
}

// monitor looks at the memory of all boxes from one goroutine. A box whose
// peak never came near its limit costs one read a round.
type monitor struct {
	r    *Runtime
	stop chan struct{}
	done chan struct{}
}

func startMonitor(r *Runtime) *monitor {
	m := &monitor{r: r, stop: make(chan struct{}), done: make(chan struct{})}
	go m.run()
	return m
}

func (m *monitor) close() {
	close(m.stop)
	<-m.done
}

func (m *monitor) run() {
	defer close(m.done)
	timer := time.NewTimer(minRound)
	defer timer.Stop()
	var hot []*box
	next := time.Now().Add(minRound)
	for {
		select {
		case <-m.stop:
			return
		case <-timer.C:
		}
		now := time.Now()
		if now.Before(next) {
			hot = look(hot)
		} else {
			m.r.mu.Lock()
			all := m.r.live()
			m.r.mu.Unlock()
			hot = look(all)
			next = now.Add(max(minRound, time.Duration(len(all))*perBox))
		}
		wait := time.Until(next)
		if len(hot) > 0 {
			wait = min(wait, hotInterval)
		}
		timer.Reset(wait)
	}
}

// look gives those of the boxes that have to be looked at again soon.
func look(boxes []*box) (hot []*box) {
	for _, b := range boxes {
		if b.alive() && b.lookAtMemory() {
			hot = append(hot, b)
		}
	}
	return hot
}

// lookAtMemory compares usage and OOM kills with what was told. Usage counts
// without the page cache that the kernel would drop first, so that a box that
// merely reads files is not warned.
func (b *box) lookAtMemory() (hot bool) {
	b.mu.Lock()
	limit := b.limits.Memory
	b.mu.Unlock()
	if peak, err := b.r.groups.Peak(b.id); err == nil && peak*100 < limit*int64(warnAt[0]) {
		return false
	}
	var u runtime.Usage
	if b.r.groups.Usage(b.id, &u) != nil || limit <= 0 {
		return false
	}
	percent := int(u.Memory * 100 / limit)
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &b.memory
	if u.OOMKills > m.kills {
		m.kills = u.OOMKills
		b.tell(runtime.Event{Kind: runtime.OOMKill, Time: time.Now()})
	}
	for _, at := range warnAt {
		if percent >= at && m.warned < at {
			m.warned = at
			b.tell(runtime.Event{Kind: runtime.MemoryWarning, Percent: at, Time: time.Now()})
		}
	}
	if percent < calm {
		m.warned = 0
	}
	return percent >= calm
}

// tell never blocks: a slow reader loses events. The caller holds b.mu.
func (b *box) tell(e runtime.Event) {
	if b.pidfd < 0 {
		return // the channel may be closed
	}
	select {
	case b.events <- e:
	default:
	}
}
