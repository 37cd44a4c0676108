// Package cgroup keeps the control groups of one node's boxes, on pure cgroup
// v2 and on hosts with v1 controllers beside a cgroup2 hierarchy.
//
// Under the node's root group (dsec-xxxxxxxx) each box has two groups: guest,
// with a small fixed budget for PID 1, and agent, which has the box's limits, so
// that OOM, fork bombs and freezing hit the agent and never PID 1. Whatever the
// host, all processes of a box are below one cgroup2 directory: that is how
// they are counted, frozen and killed. The guest makes a leaf per op below
// agent, which belongs to the box's root for that reason.
//
//	hybrid: unified/<root>/<id>           guest        v2: <root>/<id>/guest
//	        unified/<root>/<id>/agent     agent            <root>/<id>/agent
//	        memory/<root>/<id>.g          guest
//	        {memory,pids,cpu}/<root>/<id>.a agent
//
// Paths of one node are touched by its daemon alone; methods are safe for
// concurrent use on different boxes.
package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// GuestBudget bounds the memory of PID 1. It is a ceiling against a guest that
// runs wild, not a promise: an idle guest needs half a MiB, and one with as many ops
// as it allows at once, kernel memory of their pipes and cgroups included, some 140.
const GuestBudget = 160 << 20

// parking is the group that the spawner lives in. No box id contains "_".
const parking = "_spawner"

// Node is the root group of one data directory in every hierarchy used.
type Node struct {
	name    string
	unified int // descriptor of the root group in the cgroup2 hierarchy
	paths   []string
	layout  layout
}

// layout is what differs between the two worlds.
type layout interface {
	kind() string
	create(id string, l runtime.Limits, b *Birth) error
	setLimits(id string, l runtime.Limits) error
	unthrottle(id string) error
	usage(id string, u *runtime.Usage) error
	oomKills(id string) (int64, error)
	peak(id string) (int64, error)
	remove(id string) error // all but the cgroup2 directory
	list() ([]string, error)
	exists(id string) bool // apart from the cgroup2 directory
	parking() ([]int, error)
	close()
}

// Birth holds the descriptors that a box's birth needs. Close it once the
// guest has been told.
type Birth struct {
	Cgroup     int   // cgroup2 directory that the guest is cloned into
	Join       []int // v1 `tasks` files that the guest moves itself into
	AgentTasks []int // v1 `tasks` files for agent processes
	AgentDir   int   // the agent's cgroup2 directory
	// Memory and Pids are the files that tell of OOM kills and refused forks.
	Memory, Pids int
}

// Close closes the descriptors.
func (b *Birth) Close() {
	for _, fd := range append(append([]int{b.Cgroup, b.AgentDir, b.Memory, b.Pids}, b.Join...), b.AgentTasks...) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	*b = newBirth()
}

func newBirth() Birth { return Birth{Cgroup: -1, AgentDir: -1, Memory: -1, Pids: -1} }

// Options of Open. Device is the "major:minor" of the disk that io limits apply to.
type Options struct {
	Name   string
	Device string
	// Mount is where the hierarchies are; default /sys/fs/cgroup.
	Mount string
}

// Open probes the host's cgroups and makes the node's root groups.
func Open(o Options) (*Node, error) {
	if o.Mount == "" {
		o.Mount = "/sys/fs/cgroup"
	}
	n := &Node{name: o.Name, unified: -1}
	var err error
	if isCgroup2(o.Mount) {
		err = n.openV2(o)
	} else {
		err = n.openHybrid(o)
	}
	if err != nil {
		n.Close()
		return nil, err
	}
	// A guest may make groups below its agent's. Removing them must not take a
	// descent without end: box, agent, leaf and some to spare. Old kernels lack the file.
	_ = writeAt(n.unified, "cgroup.max.depth", "8")
	return n, nil
}

func isCgroup2(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// Kind is "v2" or "v1-hybrid".
func (n *Node) Kind() string { return n.layout.kind() }

// Create makes the groups of a box whose root is the host's uid, with limits
// set. On an error nothing is left.
func (n *Node) Create(id string, uid int, l runtime.Limits) (*Birth, error) {
	b := newBirth()
	if err := mkdirAt(n.unified, id); err != nil {
		return nil, err // nothing of it is ours
	}
	if err := n.create(id, uid, l, &b); err != nil {
		b.Close()
		return nil, errors.Join(err, n.Remove(id))
	}
	return &b, nil
}

func (n *Node) create(id string, uid int, l runtime.Limits, b *Birth) (err error) {
	if err = n.layout.create(id, l, b); err != nil {
		return err
	}
	agent := id + "/agent"
	if b.AgentDir, err = openDir(n.unified, agent); err != nil {
		return err
	}
	// What the guest needs to make leaves and to move between them, not more.
	for _, rel := range []string{agent, id + "/cgroup.procs", agent + "/cgroup.procs"} {
		if err = unix.Fchownat(n.unified, rel, uid, uid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return wrap("chown", rel, err)
		}
	}
	return nil
}

// SetLimits replaces the limits of a box.
func (n *Node) SetLimits(id string, l runtime.Limits) error { return n.layout.setLimits(id, l) }

// Unthrottle lifts the CPU limit of a box that is to die, if it is still there.
func (n *Node) Unthrottle(id string) { _ = n.layout.unthrottle(id) }

// OOMKills is the number of agent processes that the OOM killer took.
func (n *Node) OOMKills(id string) (int64, error) { return n.layout.oomKills(id) }

// Peak is the most memory, page cache included, that the agent had at any
// time: one cheap read that tells most boxes to be far from their limit.
func (n *Node) Peak(id string) (int64, error) { return n.layout.peak(id) }

// Usage reads the agent's counters.
func (n *Node) Usage(id string, u *runtime.Usage) error {
	if err := n.readCPU(id, u); err != nil {
		return err
	}
	return n.layout.usage(id, u)
}

// Exists says whether a box has a group in any hierarchy.
func (n *Node) Exists(id string) bool {
	return unix.Faccessat(n.unified, id, unix.F_OK, 0) == nil || n.layout.exists(id)
}

// Owner is the host id of a box's root.
func (n *Node) Owner(id string) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(n.unified, id+"/agent", &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, wrap("stat", id, err)
	}
	return st.Uid, nil
}

// List gives the ids of all boxes that have a group in any hierarchy.
func (n *Node) List() ([]string, error) {
	ids, err := n.layout.list()
	if err != nil {
		return nil, err
	}
	more, err := subdirs(n.unified)
	if err != nil {
		return nil, err
	}
	ids = append(ids, more...)
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == parking })
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Parking gives what a spawner is born in: the service manager of the daemon
// must not take the boxes, its children, for the daemon's. dir is a cgroup2
// directory to clone into, join are v1 `tasks` files for the forking thread.
// The caller closes them.
func (n *Node) Parking() (dir int, join []int, err error) {
	if err := mkdirAt(n.unified, parking); err != nil && !errors.Is(err, fs.ErrExist) {
		return -1, nil, err
	}
	if join, err = n.layout.parking(); err != nil {
		return -1, nil, err
	}
	dir, err = openDir(n.unified, parking)
	return dir, join, err
}

// Spawners gives the processes in the parking group.
func (n *Node) Spawners() []int { return n.Pids(parking) }

// AwaitSpawners returns when no process is in the parking group.
func (n *Node) AwaitSpawners(ctx context.Context) error { return n.AwaitEmpty(ctx, parking) }

// Close closes descriptors; groups stay.
func (n *Node) Close() {
	if n.layout != nil {
		n.layout.close()
	}
	if n.unified >= 0 {
		unix.Close(n.unified)
		n.unified = -1
	}
}

// RemoveRoot removes the node's root groups once the spawner has left them,
// or says that something lives there. ctx bounds the wait for the spawner.
func (n *Node) RemoveRoot(ctx context.Context) error {
	if ids, err := n.List(); err != nil || len(ids) > 0 {
		return errors.Join(err, wrap("rmdir", n.name, unix.EBUSY))
	}
	if err := n.AwaitSpawners(ctx); err != nil {
		return err
	}
	var errs []error
	for _, path := range n.paths {
		errs = append(errs, removeSoon(ctx, filepath.Join(path, parking)), removeSoon(ctx, path))
	}
	return errors.Join(errs...)
}

// removeSoon removes a group as soon as nobody is in it: the thread that forked
// the spawner ends some time after the fork, and it has joined v1 groups only.
func removeSoon(ctx context.Context, path string) error {
	for {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || ctx.Err() != nil {
			return wrap("rmdir", path, err)
		}
		time.Sleep(time.Millisecond)
	}
}
