// Package trail keeps the decisions of egress, a file of JSON lines after the other for each project, and
// finds them again. Recording never waits: what cannot be written in time is counted.
package trail

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

const (
	queueLength = 16 << 10
	segmentSize = 8 << 20
	defaultKeep = 256 << 20
	flushAfter  = 200 * time.Millisecond
)

// Trail is the record of one node. It implements egress.Sink. Safe for concurrent use.
type Trail struct {
	dir  string
	keep int64
	log  *slog.Logger

	queue   chan egress.Decision
	lost    atomic.Int64
	done    chan struct{}
	closing chan struct{}
	once    sync.Once

	mu        sync.Mutex
	followers map[*follower]struct{}
	flush     chan chan struct{}
}

var _ egress.Sink = (*Trail)(nil)

// Open makes the record below dir, which holds at most keep bytes for a project; 0: 256 MiB.
func Open(dir string, keep int64, log *slog.Logger) (*Trail, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "directory "+dir, "the record of egress cannot be made: %w", err)
	}
	if keep <= 0 {
		keep = defaultKeep
	}
	t := &Trail{
		dir: dir, keep: keep, log: log, queue: make(chan egress.Decision, queueLength), done: make(chan struct{}), closing: make(chan struct{}),
		followers: map[*follower]struct{}{}, flush: make(chan chan struct{}),
	}
	go t.run()
	return t, nil
}

// Record implements egress.Sink.
func (t *Trail) Record(d egress.Decision) {
	select {
	case t.queue <- d:
	default:
		t.lost.Add(1)
	}
}

// Lost counts decisions that could not be written in time or at all.
func (t *Trail) Lost() int64 { return t.lost.Load() }

// Close writes what is queued and ends the followers.
func (t *Trail) Close() error {
	t.once.Do(func() { close(t.closing) })
	<-t.done
	return nil
}

// run is the only writer.
func (t *Trail) run() {
	defer close(t.done)
	w := writer{trail: t, open: map[string]*segment{}}
	defer w.close()
	tick := time.NewTicker(flushAfter)
	defer tick.Stop()
	for {
		select {
		case d := <-t.queue:
			w.write(d)
		case <-tick.C:
			w.flush()
		case ack := <-t.flush:
			for len(t.queue) > 0 {
				w.write(<-t.queue)
			}
			w.flush()
			close(ack)
		case <-t.closing:
			for len(t.queue) > 0 {
				w.write(<-t.queue)
			}
			w.flush()
			t.endFollowers()
			return
		}
	}
}

// sync returns when everything that was recorded before can be read.
func (t *Trail) sync() {
	ack := make(chan struct{})
	select {
	case t.flush <- ack:
		<-ack
	case <-t.done:
	}
}

// writer holds the open segments.
type writer struct {
	trail *Trail
	open  map[string]*segment
}

type segment struct {
	f    *os.File
	buf  []byte
	size int64
	used time.Time
}

func (w *writer) write(d egress.Decision) {
	w.trail.tell(d)
	line, err := json.Marshal(d)
	if err != nil {
		w.trail.lost.Add(1)
		return
	}
	s := w.open[d.Project]
	if s == nil {
		s = &segment{}
		w.open[d.Project] = s
	}
	s.buf = append(append(s.buf, line...), '\n')
	s.used = time.Now()
	if len(s.buf) >= 64<<10 {
		w.put(d.Project, s)
	}
}

// idle segments are closed.
const idle = time.Minute

func (w *writer) flush() {
	for project, s := range w.open {
		if len(s.buf) > 0 {
			w.put(project, s)
		} else if time.Since(s.used) > idle {
			s.close()
			delete(w.open, project)
		}
	}
}

func (w *writer) close() {
	for _, s := range w.open {
		s.close()
	}
}

func (s *segment) close() {
	if s.f != nil {
		_ = s.f.Close()
		s.f = nil
	}
}

// put appends the buffer to the project's newest segment.
func (w *writer) put(project string, s *segment) {
	err := w.append(project, s)
	if err != nil {
		w.trail.lost.Add(int64(bytes.Count(s.buf, []byte{'\n'})))
		w.trail.log.Warn("the record of egress cannot be written", "project", project, "err", err)
		s.close()
	}
	s.buf = s.buf[:0]
}

func (w *writer) append(project string, s *segment) error {
	if s.f == nil || s.size > segmentSize {
		s.close()
		dir := filepath.Join(w.trail.dir, project)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(dir, segmentName(time.Now())), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		s.f, s.size = f, 0
		if err := trim(dir, w.trail.keep); err != nil {
			return err
		}
	}
	n, err := s.f.Write(s.buf)
	s.size += int64(n)
	return err
}
