package native

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/cgroup"
)

// memoryWatch turns what the kernel tells of a box's memory into events. Its
// fields are guarded by the box's mutex.
type memoryWatch struct {
	on     bool
	w      cgroup.Watch
	token  int32
	kills  int64
	warned int // highest percentage told since usage was low
	timer  *time.Timer
}

var warnAt = []int{80, 95}

const (
	// hotInterval is how often a box above the first warning is looked at.
	hotInterval = 250 * time.Millisecond
	// coldInterval is how often a box is where the kernel has no thresholds.
	coldInterval = 2 * time.Second
	// calm is the percentage below which a warning may be told again.
	calm = 75
)

// watchMemory starts, or starts again, to watch. Not being able to is no
// reason to fail a box.
func (b *box) watchMemory() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pidfd < 0 {
		return
	}
	b.memory.stop(b.r.watch)
	w, err := b.r.groups.Watch(b.id)
	if err != nil {
		b.r.log.Debug("no memory events", "box", b.id, "error", err)
		return
	}
	m := &b.memory
	m.w = w
	if m.token, err = b.r.watch.add(w.FD, w.Ready, b.memoryReady); err != nil {
		unix.Close(w.FD)
		b.r.log.Debug("no memory events", "box", b.id, "error", err)
		return
	}
	m.on = true
	if w.Poll {
		m.timer = time.AfterFunc(coldInterval, b.look)
	}
}

// stop is idempotent.
func (m *memoryWatch) stop(w *watcher) {
	if !m.on {
		return
	}
	m.on = false
	w.remove(m.w.FD, m.token)
	unix.Close(m.w.FD)
	if m.timer != nil {
		m.timer.Stop()
		m.timer = nil
	}
}

// memoryReady runs on the watcher's thread: it makes the descriptor unready
// and leaves the rest to a goroutine.
func (b *box) memoryReady() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.memory.on {
		return
	}
	var buf [512]byte
	if b.memory.w.Poll {
		_, _ = unix.Pread(b.memory.w.FD, buf[:], 0)
	} else {
		_, _ = unix.Read(b.memory.w.FD, buf[:8])
	}
	go b.look()
}

// look compares usage and OOM kills with what was told. Usage counts without
// the page cache that the kernel would drop first, so that a box that merely
// reads files is not warned. A box above the first mark is looked at again soon.
func (b *box) look() {
	var u runtime.Usage
	if b.r.groups.Usage(b.id, &u) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m := &b.memory
	if !m.on {
		return
	}
	if u.OOMKills > m.kills {
		m.kills = u.OOMKills
		b.tell(runtime.Event{Kind: runtime.OOMKill, Time: time.Now()})
	}
	if u.MemoryLimit <= 0 {
		return
	}
	percent := int(u.Memory * 100 / u.MemoryLimit)
	for _, at := range warnAt {
		if percent >= at && m.warned < at {
			m.warned = at
			b.tell(runtime.Event{Kind: runtime.MemoryWarning, Percent: at, Time: time.Now()})
		}
	}
	if percent < calm {
		m.warned = 0
	}
	switch {
	case u.Memory*100 >= u.MemoryLimit*calm || m.warned > 0:
		m.again(hotInterval, b.look)
	case m.w.Poll:
		m.again(coldInterval, b.look)
	}
}

func (m *memoryWatch) again(after time.Duration, fn func()) {
	if m.timer == nil {
		m.timer = time.AfterFunc(after, fn)
	} else {
		m.timer.Reset(after)
	}
}

// tell never blocks: a slow reader loses events.
func (b *box) tell(e runtime.Event) {
	select {
	case b.events <- e:
	default:
	}
}
