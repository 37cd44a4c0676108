package native

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/cgroup"
	"github.com/dsec-platform/dsec/internal/runtime/native/rootfs"
	"github.com/dsec-platform/dsec/internal/runtime/native/spawner"
	"github.com/dsec-platform/dsec/internal/runtime/native/store"
)

var validID = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Create makes a box; see the package comment for the order.
func (r *Runtime) Create(ctx context.Context, cfg runtime.Config) (runtime.Box, error) {
	if err := check(&cfg); err != nil {
		return nil, err
	}
	filter, err := compileSeccomp(&cfg.Claim)
	if err != nil {
		return nil, err
	}
	spare := r.takeSpare(cfg.ID)
	if spare == nil && !r.enter(cfg.ID) {
		return nil, errdefs.Userf(errdefs.AlreadyExists, "box "+cfg.ID, "choose an unused id", "a box with this id exists")
	}
	if spare != nil {
		err := r.finish(ctx, &cfg, filter, spare)
		if err == nil {
			r.leave(cfg.ID, spare)
			return spare, nil
		}
		if ctx.Err() != nil || !errors.Is(err, errSpareUnfit) && !errors.Is(err, errSetup) {
			r.leave(cfg.ID, nil)
			return nil, createError(ctx, cfg.ID, err)
		}
	}
	b, err := r.attempt(ctx, &cfg, filter)
	if errors.Is(err, errSpawner) && ctx.Err() == nil {
		r.log.Warn("the spawner failed; making the box again", "box", cfg.ID, "error", err)
		b, err = r.attempt(ctx, &cfg, filter)
	}
	if err != nil {
		r.leave(cfg.ID, nil)
		return nil, createError(ctx, cfg.ID, err)
	}
	if cfg.Pooled {
		b.connectAhead()
	}
	r.leave(cfg.ID, b)
	return b, nil
}

func check(cfg *runtime.Config) error {
	object := "box " + cfg.ID
	switch {
	case !validID.MatchString(cfg.ID):
		return errdefs.Userf(errdefs.InvalidArgument, object, "use a DNS label", "not a valid box id")
	case cfg.Limits.Memory <= 0 || cfg.Limits.Pids <= 0:
		return errdefs.Userf(errdefs.InvalidArgument, object, "set both", "memory and pids need a limit")
	case len(cfg.Root.Layers) == 0:
		return errdefs.Userf(errdefs.InvalidArgument, object, "name a template", "the root has no layer")
	case cfg.Root.HostView && cfg.RootWritable:
		return errdefs.Userf(errdefs.Unsupported, object, "import a template, or leave the root read-only", "the view of the host cannot have a writable root")
	}
	return nil
}

func createError(ctx context.Context, id string, err error) error {
	if ctx.Err() != nil {
		return errdefs.From(ctx.Err())
	}
	if e, ok := errors.AsType[*errdefs.Error](err); ok {
		return e
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return errdefs.Userf(errdefs.Unsupported, "box "+id, "leave the limit out, or see dsec doctor", "%w", err)
	}
	return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+id, "cannot make it: %w", err)
}

// enter claims an id; leave ends the claim with the box, or with none.
func (r *Runtime) enter(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, used := r.boxes[id]; used {
		return false
	}
	r.boxes[id] = nil
	return true
}

func (r *Runtime) leave(id string, b *box) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b == nil {
		delete(r.boxes, id)
	} else {
		r.boxes[id] = b
	}
}

// attempt makes a box once, and removes everything of it if that fails.
func (r *Runtime) attempt(ctx context.Context, cfg *runtime.Config, filter []byte) (*box, error) {
	slot, err := r.slots.take(cfg.ID)
	if err != nil {
		return nil, err
	}
	b := r.newBox(cfg.ID, slot)
	if err := r.make(ctx, cfg, filter, b); err != nil {
		return nil, errors.Join(err, b.wipe())
	}
	return b, nil
}

func (r *Runtime) newBox(id string, slot int) *box {
	return &box{r: r, id: id, slot: slot, pidfd: -1, done: make(chan struct{}), events: make(chan runtime.Event, 16)}
}

func (r *Runtime) make(ctx context.Context, cfg *runtime.Config, filter []byte, b *box) error {
	spawned, birth, err := r.startGuest(ctx, b, cfg.ID, cfg.Limits)
	if err != nil {
		return err
	}
	defer birth.Close()
	// While the spawner forks.
	b.limits, b.root = cfg.Limits, cfg.Root
	storeErr := b.makeStore(cfg)
	child := <-spawned
	if child.err != nil || storeErr != nil {
		if child.pidfd >= 0 {
			unix.Close(child.pidfd)
		}
		return errors.Join(child.err, storeErr)
	}
	if err := b.born(child.pid, child.pidfd); err != nil {
		return err
	}
	// While the guest's run time starts.
	return b.boot(cfg, filter, birth, func(msg *guestproto.Setup, fds []int) error { return b.setup(ctx, msg, fds) })
}

// boot builds the root tree and has the guest make the box of it. birth is nil where the guest was told its
// groups before; send hands the message over and waits for the answer.
func (b *box) boot(cfg *runtime.Config, filter []byte, birth *cgroup.Birth, send func(*guestproto.Setup, []int) error) error {
	tree, err := b.buildTree(cfg)
	if err != nil {
		return err
	}
	defer tree.Close()
	msg := setupOf(&cfg.Claim, filter)
	msg.Kind, msg.Pooled = guestproto.SetupBoot, cfg.Pooled
	if cfg.RootWritable {
		msg.WritableDirs = cfg.WritableDirs
	}
	msg.FDs = tree.Desc
	fds := tree.FDs[:len(tree.FDs):len(tree.FDs)]
	if birth != nil {
		fds = append(fds, birthFDs(birth, msg)...)
	}
	return send(msg, fds)
}

type spawned struct {
	pid, pidfd int
	err        error
}

// startGuest binds the box's socket, of this name, makes its groups and has the guest
// forked. The socket comes first: whatever there is of a box, its name tells what it is.
func (r *Runtime) startGuest(ctx context.Context, b *box, name string, l runtime.Limits) (<-chan spawned, *cgroup.Birth, error) {
	listen, err := listenUnix(r.socketPath(name), unix.SOCK_STREAM)
	if err != nil {
		return nil, nil, err
	}
	birth, err := r.groups.Create(b.id, slotBase(b.slot), l)
	if err != nil {
		unix.Close(listen)
		return nil, nil, err
	}
	result := make(chan spawned, 1)
	go func() {
		// The guest must be the only one who has the listening end: its death is then seen by every connection.
		defer unix.Close(listen)
		var s spawned
		s.pid, s.pidfd, s.err = r.spawns.spawn(ctx, &spawner.Request{
			Kind: spawner.KindSpawn, Base: uint32(slotBase(b.slot)), Count: idCount,
			Listen: listen, Exe: int(r.guest.Fd()), Cgroup: birth.Cgroup, Join: birth.Join,
		})
		result <- s
	}()
	return result, birth, nil
}

func (r *Runtime) socketPath(id string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(r.socks.Fd())) + "/" + id + ".sock"
}

// makeStore makes the store with the directories that the box begins with.
func (b *box) makeStore(cfg *runtime.Config) (err error) {
	if !cfg.RootWritable && len(cfg.WritableDirs) == 0 {
		return nil
	}
	size := cfg.StoreSize
	if size <= 0 {
		size = cfg.Limits.Memory / 2
	}
	b.writable = cfg.RootWritable
	if b.store, err = b.r.stores.Make(cfg.ID, storeKind(cfg, size), size, slotBase(b.slot)); err != nil {
		return err
	}
	if cfg.RootWritable {
		return errors.Join(b.store.Mkdir("u"), b.store.Mkdir("w"))
	}
	return b.addDirs(cfg.WritableDirs)
}

// storeKind decides what "auto" is: memory for little, disk for more.
func storeKind(cfg *runtime.Config, size int64) string {
	if cfg.Store != "" && cfg.Store != "auto" {
		return cfg.Store
	}
	if !cfg.RootWritable && size <= cfg.Limits.Memory/2 {
		return "tmpfs"
	}
	return "disk"
}

// addDirs makes d<n> for each path and remembers them.
func (b *box) addDirs(paths []string) error {
	for _, path := range paths {
		name := "d" + strconv.Itoa(len(b.dirs))
		if err := b.store.Mkdir(name); err != nil {
			return err
		}
		b.mu.Lock() // Record reads them
		b.dirs = append(b.dirs, rootfs.Dir{Area: b.store, Name: name, Path: filepath.Clean(path)})
		b.mu.Unlock()
	}
	return nil
}

func (b *box) buildTree(cfg *runtime.Config) (*rootfs.Tree, error) {
	userns, err := unix.Open("/proc/"+strconv.Itoa(b.pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: it died at its start: %w", errSetup, err)
	}
	defer unix.Close(userns)
	spec := &rootfs.Spec{UserNS: userns, Base: slotBase(b.slot), Root: cfg.Root, Dirs: b.dirs, Data: cfg.Mounts}
	if cfg.RootWritable {
		spec.Upper = b.store
	}
	return b.r.trees.Build(spec)
}

// connect opens a connection of the given kind. It does not wait for the guest.
func (b *box) connect(kind byte) (*net.UnixConn, error) { return b.r.connect(b.id, kind) }

// connect opens a connection to the guest whose socket has this name.
func (r *Runtime) connect(name string, kind byte) (*net.UnixConn, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.socketPath(name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	p := guestproto.Preamble(kind)
	if _, err := conn.Write(p[:]); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

var _ rootfs.Area = (*store.Store)(nil)
