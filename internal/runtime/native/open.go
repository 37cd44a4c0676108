package native

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/rootfs"
)

// Open takes over a live box. A pid may have been used again since the record
// was written, so the process must have the recorded start time, and the box's
// cgroup must hold it, before it is believed.
func (r *Runtime) Open(_ context.Context, rec runtime.Record) (runtime.Box, error) {
	var d record
	if err := json.Unmarshal(rec.Data, &d); err != nil || d.Version < 1 {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+rec.ID, "its record cannot be read: %w", err)
	}
	if d.Version > recordVersion {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Unsupported, "box "+rec.ID, "its record is of a newer dsec")
	}
	b := &box{
		r: r, id: rec.ID, slot: d.Slot, root: d.Root, writable: d.Writable, limits: d.Limits, claimed: d.Claimed,
		pidfd: -1, done: make(chan struct{}), events: make(chan runtime.Event, 16),
	}
	if d.BootID != bootID() || !r.slots.reserve(d.Slot, rec.ID) {
		return nil, b.gone()
	}
	if !r.enter(rec.ID) {
		r.mu.Lock()
		other := r.boxes[rec.ID]
		r.mu.Unlock()
		if other != nil && !other.alive() {
			return nil, b.gone()
		}
		return nil, errdefs.Userf(errdefs.AlreadyExists, "box "+rec.ID, "use the box that is open", "it is open already")
	}
	if err := b.adopt(&d); err != nil {
		if _, missing := r.groups.Owner(rec.ID); errors.Is(missing, os.ErrNotExist) {
			r.slots.free(d.Slot, rec.ID) // otherwise Sweep does, once nothing is left
		}
		r.leave(rec.ID, nil)
		return nil, err
	}
	r.leave(rec.ID, b)
	return b, nil
}

func (b *box) adopt(d *record) error {
	pidfd, err := unix.PidfdOpen(d.Pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
		return b.gone()
	} else if err != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+b.id, "cannot watch its PID 1: %w", err)
	}
	// With the pidfd open, what /proc says about the pid is about this very process or about none.
	if !b.isOurs(d) {
		unix.Close(pidfd)
		return b.gone()
	}
	b.findStore(d)
	b.memory.kills, _ = b.r.groups.OOMKills(b.id) // told by the earlier daemon
	if err := b.born(d.Pid, pidfd); err != nil {
		b.closeStore()
		return b.gone()
	}
	return nil
}

func (b *box) isOurs(d *record) bool {
	start, err := startTime(d.Pid)
	return err == nil && start == d.StartTime && slices.Contains(b.r.groups.Pids(b.id), d.Pid)
}

// findStore gets hold of the store through the box's own mounts, for its
// figures. A box may have renamed what leads there: then there are none.
func (b *box) findStore(d *record) {
	for _, path := range d.Dirs {
		b.dirs = append(b.dirs, rootfs.Dir{Path: path})
	}
	if d.Store == nil {
		return
	}
	fd := -1
	root, err := unix.Open("/proc/"+strconv.Itoa(d.Pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		path := "."
		if len(d.Dirs) > 0 {
			path = strings.TrimLeft(d.Dirs[0], "/")
		}
		fd, err = unix.Openat2(root, path, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		unix.Close(root)
	}
	if err != nil {
		b.r.log.Debug("the store of an adopted box cannot be seen", "box", b.id, "error", err)
		fd = -1
	}
	b.store = b.r.stores.Adopt(b.id, *d.Store, fd)
	for i := range b.dirs {
		b.dirs[i].Area = b.store
	}
}
