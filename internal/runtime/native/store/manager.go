package store

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Options of a Manager.
type Options struct {
	// Dir holds the disk stores of boxes and nothing else; Images what is made
	// ahead. Both are made, 0700, on one file system, and belong to the manager.
	Dir, Images string
	// TmpfsIDs says whether a tmpfs can be id-mapped here.
	TmpfsIDs bool
	Log      *slog.Logger
}

// Manager makes stores. Safe for concurrent use.
type Manager struct {
	o    Options
	disk Kind   // how a disk store is made
	why  string // what the better kinds lack
	loop *images
	warn sync.Once
}

// New probes what this machine can do, and clears away what an earlier daemon
// had made ahead.
func New(o Options) (*Manager, error) {
	for _, dir := range []string{o.Dir, o.Images} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	var err error
	if o.Dir, err = filepath.EvalSymlinks(o.Dir); err != nil { // the kernel names images by their real path
		return nil, err
	}
	m := &Manager{o: o, disk: Tmpfs}
	quotaErr := probeQuota(o.Images)
	if quotaErr == nil {
		m.disk = Quota
		return m, nil
	}
	loopErr := probeLoop()
	if loopErr == nil {
		m.disk = Loop
		m.loop = newImages(o.Images, o.Log)
	}
	m.why = errors.Join(quotaErr, loopErr).Error()
	return m, nil
}

// Disk says how disk stores are made here, and why not better.
func (m *Manager) Disk() (Kind, string) { return m.disk, m.why }

// Make makes the store of a box: wanted is "tmpfs" or "disk", owner the host's
// id of the box's root.
func (m *Manager) Make(id, wanted string, size int64, owner int) (*Store, error) {
	kind := Tmpfs
	if wanted == "disk" {
		kind = m.disk
	}
	switch kind {
	case Quota:
		return m.makeQuota(id, size, owner)
	case Loop:
		return m.makeLoop(id, size)
	}
	if wanted == "disk" {
		m.warn.Do(func() { m.o.Log.Warn("no disk store on this machine: boxes write to memory", "why", m.why) })
	}
	return newTmpfs(size, m.o.TmpfsIDs, owner)
}

func (m *Manager) path(id string) string  { return filepath.Join(m.o.Dir, id+dirSuffix) }
func (m *Manager) image(id string) string { return filepath.Join(m.o.Dir, id+imageSuffix) }

const (
	dirSuffix   = ".dir"
	imageSuffix = ".img"
)

func (m *Manager) makeLoop(id string, size int64) (*Store, error) {
	s, err := m.loop.take(size, m.image(id))
	if err != nil {
		return nil, err
	}
	s.destroy = func() error { return removeImage(m.image(id), s.device) }
	return s, nil
}

// Adopt gives the store of a box that an earlier daemon made; fd is a
// directory in it, or -1.
func (m *Manager) Adopt(id string, rec Record, fd int) *Store {
	s := &Store{kind: rec.Kind, fd: fd, ids: rec.IDs, size: rec.Size, device: rec.Device}
	s.destroy = func() error { return m.Remove(id) }
	if rec.Kind == Loop {
		s.destroy = func() error { return removeImage(m.image(id), rec.Device) }
	}
	return s
}

// List gives the boxes that have anything on disk.
func (m *Manager) List() ([]string, error) {
	entries, err := os.ReadDir(m.o.Dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		for _, suffix := range []string{dirSuffix, imageSuffix} {
			if id, ok := strings.CutSuffix(e.Name(), suffix); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// Find gives what is on disk of a box.
func (m *Manager) Find(id string) (paths []string) {
	for _, path := range []string{m.path(id), m.image(id)} {
		if exists(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Remove removes what is on disk of a box whose processes and mounts are gone
// or going, and returns when it is.
func (m *Manager) Remove(id string) error {
	var errs []error
	if dir := m.path(id); exists(dir) {
		errs = append(errs, removeTree(dir))
	}
	if image := m.image(id); exists(image) {
		errs = append(errs, removeImage(image, ""))
	}
	return errors.Join(errs...)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// Close gives up what was made ahead. Stores of boxes stay.
func (m *Manager) Close() {
	if m.loop != nil {
		m.loop.close()
	}
}

// openDir opens the root directory of a store.
func openDir(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}
