package store

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// spares is how many images are ready per size, maxSizes for how many sizes.
const (
	spares   = 4
	maxSizes = 4
)

// images keeps a few mounted images ready per size in use: making one costs
// 2 ms, the first of a size 100 ms more.
type images struct {
	dir   string
	log   *slog.Logger
	seq   atomic.Int64
	mu    sync.Mutex
	sizes map[int64]*sizeClass
	used  int64 // counts takes, to find the size least recently used
	wg    sync.WaitGroup
	done  bool
}

type sizeClass struct {
	ready   []spare
	filling bool
	used    int64
	golden  sync.Mutex
}

type spare struct {
	path   string
	fd     int
	device string
}

func newImages(dir string, log *slog.Logger) *images {
	m := &images{dir: dir, log: log, sizes: map[int64]*sizeClass{}}
	m.clear()
	return m
}

// clear removes what a daemon that was killed has left; the mounts went with it. An empty image of the
// largest size has 200 MB of tables in thousands of pieces and takes half a second and more to remove: no start
// waits for that. It is out of the way of new names at once.
func (m *images) clear() {
	left, _ := os.ReadDir(m.dir)
	if len(left) == 0 {
		return
	}
	away, err := os.MkdirTemp(m.dir, "left-")
	if err != nil {
		m.log.Warn("disk images of an earlier daemon are in the way", "directory", m.dir, "error", err)
		return
	}
	for _, e := range left {
		if err := os.Rename(filepath.Join(m.dir, e.Name()), filepath.Join(away, e.Name())); err != nil {
			m.log.Warn("a disk image of an earlier daemon is in the way", "image", e.Name(), "error", err)
		}
	}
	m.wg.Go(func() {
		for _, e := range left {
			if m.ended() {
				return // the next daemon goes on
			}
			_ = os.RemoveAll(filepath.Join(away, e.Name())) // as above
		}
		_ = os.Remove(away)
	})
}

func (m *images) ended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done
}

// take gives an image of the size under the given name.
func (m *images) take(size int64, name string) (*Store, error) {
	size = max((size+4095)&^4095, minImage)
	s, c := m.pop(size)
	if s.path == "" {
		var err error
		if s, err = m.make(size, c); err != nil {
			return nil, err
		}
	}
	m.refill(size, c)
	st := &Store{kind: Loop, fd: s.fd, ids: true, size: size, device: s.device}
	if err := os.Rename(s.path, name); err != nil {
		st.Close()
		os.Remove(s.path)
		return nil, err
	}
	return st, nil
}

func (m *images) pop(size int64) (spare, *sizeClass) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used++
	c := m.sizes[size]
	if c == nil {
		m.evict()
		c = &sizeClass{}
		m.sizes[size] = c
	}
	c.used = m.used
	if n := len(c.ready); n > 0 {
		s := c.ready[n-1]
		c.ready = c.ready[:n-1]
		return s, c
	}
	return spare{}, c
}

// evict makes room for one more size. The caller holds m.mu.
func (m *images) evict() {
	for len(m.sizes) >= maxSizes {
		oldest := int64(-1)
		for size, c := range m.sizes {
			if oldest < 0 || c.used < m.sizes[oldest].used {
				oldest = size
			}
		}
		m.sizes[oldest].drop()
		delete(m.sizes, oldest)
		os.Remove(m.goldenPath(oldest))
	}
}

func (c *sizeClass) drop() {
	for _, s := range c.ready {
		(&Store{fd: s.fd}).Close()
		os.Remove(s.path)
	}
	c.ready = nil
}

func (m *images) goldenPath(size int64) string {
	return filepath.Join(m.dir, fmt.Sprintf("golden-%d", size))
}

func (m *images) make(size int64, c *sizeClass) (spare, error) {
	golden := m.goldenPath(size)
	c.golden.Lock()
	var err error
	if !exists(golden) {
		err = makeGolden(golden, size)
	}
	c.golden.Unlock()
	if err != nil {
		return spare{}, err
	}
	s := spare{path: filepath.Join(m.dir, fmt.Sprintf("spare-%d-%d", os.Getpid(), m.seq.Add(1)))}
	if err := copySparse(golden, s.path); err != nil {
		return spare{}, err
	}
	if s.fd, s.device, err = mountImage(s.path); err != nil {
		os.Remove(s.path)
		return spare{}, err
	}
	return s, nil
}

// refill makes images ahead in the background, one goroutine a size.
func (m *images) refill(size int64, c *sizeClass) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.filling || m.done {
		return
	}
	c.filling = true
	m.wg.Go(func() {
		for m.wanted(size, c) {
			s, err := m.make(size, c)
			m.mu.Lock()
			switch {
			case err != nil:
				m.log.Warn("cannot make a disk image ahead", "size", size, "error", err)
				c.filling = false
			case m.done || m.sizes[size] != c:
				(&Store{fd: s.fd}).Close()
				os.Remove(s.path)
			default:
				c.ready = append(c.ready, s)
			}
			m.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
}

func (m *images) wanted(size int64, c *sizeClass) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.filling = !m.done && m.sizes[size] == c && len(c.ready) < spares
	return c.filling
}

func (m *images) close() {
	m.mu.Lock()
	m.done = true
	m.mu.Unlock()
	m.wg.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for size, c := range m.sizes {
		c.drop()
		os.Remove(m.goldenPath(size))
	}
}
