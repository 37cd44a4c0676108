package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// New probes how trees can be built here, with a user namespace to map to
// (userns, base), and gives the builder. It tries the real thing on a scratch
// directory below o.Cache.
func New(o Options, userns, base int) (*Builder, error) {
	dev, err := newDev()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, try := range []func(Options) (rung, func() error){newModern, newAttached} {
		r, setup := try(o)
		threads := o.Threads
		if setup != nil { // the state is one thread's own
			threads = 1
		}
		b := &Builder{o: o, dev: dev, rung: r, mounter: newMounter(threads, setup)}
		err := b.probe(userns, base)
		if err == nil {
			b.probeTmpfs(userns)
			return b, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", r.name(), err))
		b.mounter.close()
		b.layers.close()
	}
	unix.Close(dev)
	return nil, errors.Join(errs...)
}

func newModern(Options) (rung, func() error) { return modern{}, nil }

// scratch is a directory of the host's disk used as a writable area.
type scratch struct{ fd int }

func (s scratch) FD() int   { return s.fd }
func (s scratch) IDs() bool { return true }

// probe builds a writable root over two layers, and a read-only one.
func (b *Builder) probe(userns, base int) error {
	if err := os.MkdirAll(b.o.Cache, 0o700); err != nil {
		return err
	}
	left, _ := filepath.Glob(filepath.Join(b.o.Cache, ".*-*")) // half-made by a daemon that was killed
	for _, dir := range left {
		os.RemoveAll(dir)
	}
	dir, err := os.MkdirTemp(b.o.Cache, ".probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, sub := range []string{"a/dev", "b/dev", "s/u", "s/w", "s/d"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	fd, err := unix.Open(filepath.Join(dir, "s"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	layers := []runtime.Layer{{Path: filepath.Join(dir, "a")}, {Path: filepath.Join(dir, "b")}}
	for _, s := range []*Spec{
		{UserNS: userns, Base: base, Root: runtime.Root{Layers: layers}, Upper: scratch{fd}},
		{UserNS: userns, Base: base, Root: runtime.Root{Layers: layers}, Dirs: []Dir{{scratch{fd}, "d", "/dev"}}},
	} {
		t, err := b.Build(s)
		if err != nil {
			return err
		}
		t.Close()
	}
	for _, l := range layers { // the cache must not outlive the scratch directory
		b.layers.drop(l.Path)
	}
	return nil
}

// probeTmpfs finds out whether an attached tmpfs can be id-mapped.
func (b *Builder) probeTmpfs(userns int) {
	a, ok := b.rung.(*attached)
	if !ok {
		return
	}
	_ = b.mounter.do(-1, func() error {
		fd, err := a.clone(b.dev, "", unix.MOUNT_ATTR_RDONLY, userns)
		if err == nil {
			unix.Close(fd)
			a.tmpfsIDs = true
		}
		return nil
	})
}

// ProbeEROFS says whether an EROFS image can be mounted from a plain file: a
// kernel that cannot asks for a block device before it looks at the bytes.
func ProbeEROFS(dir string) error {
	f, err := os.CreateTemp(dir, ".erofs-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := f.Truncate(1 << 16); err != nil {
		return err
	}
	fd, err := newFS("erofs", unix.MOUNT_ATTR_RDONLY, str("source", f.Name()), flag("ro"))
	if err == nil {
		unix.Close(fd)
		return nil
	}
	if errors.Is(err, unix.EINVAL) && !strings.Contains(err.Error(), "option") {
		return nil // read, and found to be no image
	}
	return err
}
