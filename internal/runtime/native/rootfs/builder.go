package rootfs

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// Options of a Builder.
type Options struct {
	// Cache is a directory for mount-point layers; it is made on demand.
	Cache string
	// Stage is an existing empty directory for kernels that can only work on
	// attached mounts. Nothing is seen there from outside.
	Stage string
	// Threads is the number of mounts made at the same time.
	Threads int
}

// Builder builds trees. Safe for concurrent use.
type Builder struct {
	o       Options
	dev     int
	layers  layers
	mounter *mounter
	rung    rung
	mu      sync.Mutex // makes mount-point layers
}

// rung is a way to build trees that the kernel was found to be able to do.
type rung interface {
	name() string
	// root builds the root of s from its layers. It runs on a mounting thread.
	root(b *Builder, s *Spec) (int, error)
	// dir gives a directory of the store as a mount.
	dir(b *Builder, s *Spec, d Dir) (int, error)
	// clone gives a detached copy of a mount, see the function of that name.
	clone(fd int, path string, attrs uint64, userns int) (int, error)
	// release undoes what clone left behind for fd.
	release(fd int)
	idmapsTmpfs() bool
}

// Spec of one tree.
type Spec struct {
	UserNS int // descriptor of the box's user namespace, or any with the same map
	Base   int // the box's first host id
	Root   runtime.Root
	// Upper is the store for a writable root; nil for a read-only one.
	Upper Area
	// Dirs are the store's directories to show at writable paths.
	Dirs []Dir
	Data []runtime.DataMount
}

// Area is a writable area of a box: what package store makes.
type Area interface {
	// FD is a descriptor of its root directory.
	FD() int
	// IDs says whether files in it hold the container's ids (and it has to be id-mapped).
	IDs() bool
}

// Dir shows the directory Name of Area at Path.
type Dir struct {
	Area Area
	Name string
	Path string
}

// Tree is a finished tree: descriptors for a guestproto.Setup.
type Tree struct {
	Desc []guestproto.SetupFD
	FDs  []int
}

// Add appends a descriptor, which is the tree's from now on.
func (t *Tree) Add(role guestproto.FDRole, path string, fd int) {
	t.Desc = append(t.Desc, guestproto.SetupFD{Role: role, Path: path})
	t.FDs = append(t.FDs, fd)
}

// Close closes the descriptors: mounts that no guest took vanish.
func (t *Tree) Close() {
	for _, fd := range t.FDs {
		unix.Close(fd)
	}
	t.FDs, t.Desc = nil, nil
}

// Build builds a whole tree: root, /dev, host binds, data mounts, writable directories.
func (b *Builder) Build(s *Spec) (*Tree, error) {
	t := &Tree{}
	err := b.mounter.do(s.Base, func() error { return b.build(s, t) })
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (b *Builder) build(s *Spec, t *Tree) error {
	root, err := b.rung.root(b, s)
	if err != nil {
		return err
	}
	missing, err := b.missing(root, s)
	if err == nil && len(missing) > 0 && s.Upper == nil { // in a writable root the guest makes them
		root, err = b.withMountPoints(root, s, missing)
	}
	if err != nil {
		unix.Close(root)
		return err
	}
	t.Add(guestproto.FDRoot, "", root)
	dev, err := b.shared("", s)
	if err != nil {
		return err
	}
	t.Add(guestproto.FDMount, "/dev", dev)
	if s.Root.HostView {
		if err := b.hostBinds(s, t); err != nil {
			return err
		}
	}
	return b.extras(s, t)
}

// Extras builds only the data mounts and writable directories of s, for a box
// that stands. current is a descriptor of its root: where that is read-only and
// has not the mount points, the tree has a new root that has. -1: no need to look.
func (b *Builder) Extras(s *Spec, current int) (*Tree, error) {
	t := &Tree{}
	err := b.mounter.do(s.Base, func() error {
		if current >= 0 {
			if err := b.replaceRoot(s, t, current); err != nil {
				return err
			}
		}
		return b.extras(s, t)
	})
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (b *Builder) replaceRoot(s *Spec, t *Tree, current int) error {
	missing, err := b.missing(current, s)
	if err != nil || len(missing) == 0 {
		return err
	}
	root, err := b.rung.root(b, s)
	if err != nil {
		return err
	}
	if root, err = b.withMountPoints(root, s, missing); err != nil {
		unix.Close(root)
		return err
	}
	t.Add(guestproto.FDRoot, "", root)
	return nil
}

func (b *Builder) extras(s *Spec, t *Tree) error {
	for _, d := range s.Dirs {
		fd, err := b.rung.dir(b, s, d)
		if err != nil {
			return err
		}
		t.Add(guestproto.FDWritable, d.Path, fd)
	}
	for _, m := range s.Data {
		fd, err := dataMount(m)
		if err != nil {
			return err
		}
		t.Add(guestproto.FDMount, m.Target, fd)
	}
	return nil
}

// shared gives a box's view of a part of the shared /dev.
func (b *Builder) shared(path string, s *Spec) (int, error) {
	userns := -1
	if b.rung.idmapsTmpfs() {
		userns = s.UserNS
	}
	return b.rung.clone(b.dev, path, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, userns)
}

// Release must be called before an area's descriptor is closed.
func (b *Builder) Release(a Area) {
	if _, ok := b.rung.(modern); ok {
		return // nothing to undo, no thread to wait for
	}
	_ = b.mounter.do(-1, func() error { b.rung.release(a.FD()); return nil })
}

// Forget drops cached layers whose files were removed.
func (b *Builder) Forget() { b.layers.forget() }

// IDMapsTmpfs says whether a tmpfs can be id-mapped; where not, files in a
// tmpfs area must belong to the box's host ids.
func (b *Builder) IDMapsTmpfs() bool { return b.rung.idmapsTmpfs() }

// Rung names how trees are built here.
func (b *Builder) Rung() string { return b.rung.name() }

// Close releases threads and descriptors; boxes keep their mounts.
func (b *Builder) Close() error {
	b.mounter.close()
	b.layers.close()
	return unix.Close(b.dev)
}
