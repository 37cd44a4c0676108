// Package native is the product's own runtime: namespaces, overlay, cgroups and
// seccomp, without a container engine, in a few milliseconds.
//
// A box is made in this order, so that the parts overlap: cgroups and socket;
// the spawner forks the guest; while the guest's run time starts, the store and
// the root tree are built as detached mounts; one message on the box's socket
// hands them over, and the guest's reply means that the box stands.
//
// What lives on without the daemon (the guest, its cgroups, its socket, its
// store) is enough to take the box over again: Record holds the rest. The id
// range of a live box can even be read off its cgroup, so that a new daemon never
// gives it away, whatever it has or has not been told to open.
package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/cgroup"
	"github.com/dsec-platform/dsec/internal/runtime/native/rootfs"
	"github.com/dsec-platform/dsec/internal/runtime/native/store"
)

// Options of the native runtime.
type Options struct {
	// DataDir is the node's data directory, absolute. It is 0700.
	DataDir string
	// RunDir holds sockets; default DataDir/run.
	RunDir string
	// Parallel is the number of boxes made at the same time; default 2 × cores, at least 4.
	Parallel int
	Log      *slog.Logger
}

// Runtime implements runtime.Runtime.
type Runtime struct {
	o      Options
	log    *slog.Logger
	groups *cgroup.Node
	trees  *rootfs.Builder
	stores *store.Manager
	watch  *watcher
	memory *monitor
	spawns *spawnClient
	slots  *slots
	guest  *os.File // the guest's binary
	socks  *os.File // directory of the boxes' sockets
	run    *os.File
	probe  runtime.Probe

	mu    sync.Mutex
	boxes map[string]*box // nil while a box is being made or unmade
}

var _ runtime.Runtime = (*Runtime)(nil)

// New probes the machine and makes the runtime of one data directory. It needs
// root. Boxes of an earlier daemon are left alone until Open or Sweep.
func New(o Options) (_ *Runtime, err error) {
	if o.RunDir == "" {
		o.RunDir = filepath.Join(o.DataDir, "run")
	}
	if o.Parallel <= 0 {
		o.Parallel = max(2*goruntime.NumCPU(), 4)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	r := &Runtime{o: o, log: o.Log.With("runtime", "native"), boxes: map[string]*box{}, slots: newSlots(o.DataDir)}
	defer func() {
		if err != nil {
			r.release(0)
		}
	}()
	// Descriptors inherited without close-on-exec must not reach any child.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("close_range", err)
	}
	raiseFiles()
	if err := r.openDirs(); err != nil {
		return nil, err
	}
	guest, err := binary(filepath.Join(o.DataDir, "bin"), "dsec-guest")
	if err != nil {
		return nil, err
	}
	if r.guest, err = os.Open(guest); err != nil {
		return nil, err
	}
	spawnerPath, err := binary(filepath.Join(o.DataDir, "bin"), "dsec-spawner")
	if err != nil {
		return nil, err
	}
	if r.groups, err = cgroup.Open(cgroup.Options{Name: rootName(o.DataDir), Device: diskOf(o.DataDir)}); err != nil {
		return nil, unavailable("cgroups", "see dsec doctor", err)
	}
	if r.watch, err = newWatcher(); err != nil {
		return nil, err
	}
	r.spawns = newSpawnClient(r.run, spawnerPath, r.groups, o.Parallel)
	if err := r.reserveLive(); err != nil {
		return nil, err
	}
	if err := r.probeTrees(guest); err != nil {
		return nil, unavailable("mounts", "needed are Linux 5.19 or newer with overlay, and a data directory on a file system with id-mapped mounts (ext4, xfs, btrfs); see dsec doctor", err)
	}
	r.stores, err = store.New(store.Options{
		Dir: filepath.Join(o.DataDir, "boxes"), Images: filepath.Join(o.DataDir, "images"), TmpfsIDs: r.trees.IDMapsTmpfs(), Log: r.log,
	})
	if err != nil {
		return nil, err
	}
	r.memory = startMonitor(r)
	r.probe = r.describe()
	return r, nil
}

// Name is "native".
func (r *Runtime) Name() string { return "native" }

// Close lets go of all boxes, which live on, and ends the spawner if there are none.
func (r *Runtime) Close() error {
	r.mu.Lock()
	boxes := r.live()
	r.boxes = map[string]*box{}
	r.mu.Unlock()
	for _, b := range boxes {
		b.detach()
	}
	var patience time.Duration
	if len(boxes) == 0 {
		patience = dyingTime
	}
	r.release(patience)
	return nil
}

// dyingTime is how long a spawner whose last box was just destroyed may see that box's
// processes as its children.
const dyingTime = 2 * time.Second

// live gives the boxes that stand. The caller holds r.mu.
func (r *Runtime) live() []*box {
	boxes := make([]*box, 0, len(r.boxes))
	for _, b := range r.boxes {
		if b != nil {
			boxes = append(boxes, b)
		}
	}
	return boxes
}

// release undoes New as far as it came. It waits up to patience for dying boxes.
func (r *Runtime) release(patience time.Duration) {
	if r.memory != nil {
		r.memory.close()
	}
	if r.spawns != nil {
		r.spawns.close()
	}
	if r.stores != nil {
		r.stores.Close()
	}
	if r.trees != nil {
		_ = r.trees.Close()
	}
	if r.watch != nil {
		r.watch.close()
	}
	if r.groups != nil {
		r.endSpawner(patience)
		r.groups.Close()
	}
	for _, f := range []*os.File{r.guest, r.socks, r.run} {
		if f != nil {
			f.Close()
		}
	}
}

// endSpawner ends the spawner and removes the node's groups, if no box lives.
func (r *Runtime) endSpawner(patience time.Duration) {
	for end := time.Now().Add(patience); r.spawns != nil && !r.spawns.quit(); time.Sleep(time.Millisecond) {
		if !time.Now().Before(end) {
			return
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.groups.RemoveRoot(ctx); err != nil {
		r.log.Debug("the node's cgroups stay", "error", err)
	}
}

func (r *Runtime) openDirs() (err error) {
	for _, dir := range []string{r.o.DataDir, r.o.RunDir, filepath.Join(r.o.RunDir, "boxes"), filepath.Join(r.o.RunDir, "stage")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if r.run, err = os.Open(r.o.RunDir); err != nil {
		return err
	}
	r.socks, err = os.Open(filepath.Join(r.o.RunDir, "boxes"))
	return err
}

// rootName names the node's groups after its data directory.
func rootName(dataDir string) string {
	sum := sha256.Sum256([]byte(dataDir))
	return "dsec-" + hex.EncodeToString(sum[:4])
}

// raiseFiles lifts the descriptor limit of this process: a live box needs a few.
func raiseFiles() {
	want := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &want) == nil {
		return
	}
	var have unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &have) == nil {
		have.Cur = have.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &have)
	}
}

// reserveLive keeps the id ranges of boxes that exist.
func (r *Runtime) reserveLive() error {
	ids, err := r.groups.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		owner, err := r.groups.Owner(id)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if slot := slotOf(int(owner)); slot >= 0 {
			r.slots.reserve(slot, id)
		}
	}
	return nil
}

// Probe gives what New found.
func (r *Runtime) Probe(context.Context) runtime.Probe { return r.probe }
