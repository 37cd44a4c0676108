package native

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/rootfs"
	"github.com/dsec-platform/dsec/internal/runtime/native/store"
)

// box implements runtime.Box.
type box struct {
	r         *Runtime
	id        string
	slot      int
	pid       int
	startTime uint64 // of pid, clock ticks since boot: tells a reused pid
	root      runtime.Root
	writable  bool // root

	done   chan struct{}
	events chan runtime.Event

	mu        sync.Mutex
	pidfd     int
	pidToken  int32
	store     *store.Store
	dirs      []rootfs.Dir
	limits    runtime.Limits
	memory    memoryState
	claimed   bool
	destroyed bool
	spare     *spare        // until Create has finished it; nobody else has the box before
	dialled   *net.UnixConn // made ahead for the first Dial
	claimConn *net.UnixConn // made ahead for the Claim of a pooled box
	destroy   sync.Mutex    // one Destroy at a time
}

var (
	_ runtime.Box       = (*box)(nil)
	_ runtime.Networked = (*box)(nil)
)

// ID is the box's id.
func (b *box) ID() string { return b.id }

// Done is closed when PID 1 is gone.
func (b *box) Done() <-chan struct{} { return b.done }

// Events delivers memory warnings and OOM kills.
func (b *box) Events() <-chan runtime.Event { return b.events }

// born takes over the guest's process and begins to wait for its end. After an
// error nobody waits: the process is dead, or found by its groups.
func (b *box) born(pid, pidfd int) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pid, b.pidfd = pid, pidfd
	if b.startTime, err = startTime(pid); err == nil {
		b.pidToken, err = b.r.watch.add(pidfd, unix.EPOLLIN, b.exited)
	}
	if err != nil {
		unix.Close(pidfd)
		b.pidfd = -1
	}
	return err
}

// exited runs on the watcher's thread when PID 1 is gone.
func (b *box) exited() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pidfd < 0 {
		return
	}
	b.closePidfd()
	close(b.done)
	close(b.events)
}

func (b *box) closePidfd() {
	b.r.watch.remove(b.pidfd, b.pidToken)
	unix.Close(b.pidfd)
	b.pidfd = -1
}

// detach lets go of a box that lives on.
func (b *box) detach() {
	b.closeAhead()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pidfd >= 0 {
		b.closePidfd()
	}
	b.closeStore()
}

func (b *box) closeStore() {
	if b.store != nil {
		b.r.trees.Release(b.store)
		b.store.Close()
	}
}

func (b *box) alive() bool {
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

func (b *box) gone() error {
	return errdefs.Policyf(errdefs.BoxGone, "box "+b.id, "make a new session", "its PID 1 has ended")
}

// explain turns the failure of a control file into "gone" where that is why.
func (b *box) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case !b.alive(), errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENODEV):
		return b.gone()
	case errors.Is(err, errors.ErrUnsupported):
		return errdefs.Userf(errdefs.Unsupported, "box "+b.id, "make a new box with it", "not possible in this box: %w", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return errdefs.From(err) // how long its processes take to stand still is the agent's doing
	}
	return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+b.id, "%w", err)
}

// Dial opens a control connection.
func (b *box) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, errdefs.From(err)
	}
	b.mu.Lock()
	ahead := b.dialled
	b.dialled = nil
	b.mu.Unlock()
	if ahead != nil {
		return ahead, nil
	}
	conn, err := b.connect(guestproto.PreambleControl)
	if err != nil {
		if !b.alive() || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
			return nil, b.gone()
		}
		for _, ours := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS} {
			if errors.Is(err, ours) {
				return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+b.id, "the node cannot connect to it: %w", err)
			}
		}
		return nil, errdefs.Policyf(errdefs.BoxTampered, "box "+b.id, "make a new session", "the guest takes no connection: %w", err)
	}
	return conn, nil
}

// Netns opens the box's network namespace.
func (b *box) Netns() (*os.File, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(b.pid) + "/ns/net")
	if err == nil && b.alive() { // then the pid was not another process's when the file was opened
		return f, nil
	}
	if f != nil {
		f.Close()
	}
	return nil, b.gone()
}

// SetLimits replaces the limits.
func (b *box) SetLimits(_ context.Context, l runtime.Limits) error {
	if err := b.r.groups.SetLimits(b.id, l); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return errdefs.Limitf(errdefs.OutOfMemory, "box "+b.id, "free memory in the box first", "it uses more than the new memory limit")
		}
		return b.explain(err)
	}
	b.mu.Lock()
	b.limits = l
	b.mu.Unlock()
	return nil
}

// Usage reads the counters.
func (b *box) Usage(context.Context) (runtime.Usage, error) {
	var u runtime.Usage
	if err := b.r.groups.Usage(b.id, &u); err != nil {
		return u, b.explain(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.store != nil {
		u.StoreUsed, u.StoreLimit = b.store.Used()
	}
	return u, nil
}

// Freeze stops the agent.
func (b *box) Freeze(ctx context.Context) error { return b.explain(b.r.groups.Freeze(ctx, b.id)) }

// Thaw lets it go on.
func (b *box) Thaw(ctx context.Context) error { return b.explain(b.r.groups.Thaw(ctx, b.id)) }

// KillAgent kills the agent's processes.
func (b *box) KillAgent(ctx context.Context) error {
	return b.explain(b.r.groups.KillAgent(ctx, b.id))
}
