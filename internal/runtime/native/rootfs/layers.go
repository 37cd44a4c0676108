package rootfs

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// layers keeps every layer of the node open once: a file-backed EROFS image as
// a detached mount (no loop device), a directory as a path descriptor.
type layers struct {
	mu   sync.Mutex
	open map[string]*layer
}

type layer struct {
	once sync.Once
	fd   int
	err  error
}

// get gives the layer's descriptor, which stays the cache's.
func (c *layers) get(l runtime.Layer) (int, error) {
	c.mu.Lock()
	if c.open == nil {
		c.open = map[string]*layer{}
	}
	e, ok := c.open[l.Path]
	if !ok {
		e = &layer{fd: -1}
		c.open[l.Path] = e
	}
	c.mu.Unlock()
	e.once.Do(func() { e.fd, e.err = openLayer(l) })
	if e.err != nil { // not cached: the layer may be there the next time
		c.mu.Lock()
		if c.open[l.Path] == e {
			delete(c.open, l.Path)
		}
		c.mu.Unlock()
	}
	return e.fd, e.err
}

func openLayer(l runtime.Layer) (int, error) {
	if l.EROFS {
		return newFS("erofs", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOSUID,
			str("source", l.Path), flag("ro"))
	}
	fd, err := unix.Open(l.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	return fd, pathErr("open layer", l.Path, err)
}

// forget closes layers whose files are gone: their template was removed.
func (c *layers) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for path, e := range c.open {
		if _, err := os.Lstat(path); os.IsNotExist(err) {
			delete(c.open, path)
			if e.fd >= 0 {
				unix.Close(e.fd)
			}
		}
	}
}

func (c *layers) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.open {
		if e.fd >= 0 {
			unix.Close(e.fd)
		}
	}
	c.open = nil
}

// drop closes one layer.
func (c *layers) drop(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.open[path]; ok {
		delete(c.open, path)
		if e.fd >= 0 {
			unix.Close(e.fd)
		}
	}
}
