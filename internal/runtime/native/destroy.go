package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// killTimeout bounds how long the kernel may take to end a killed box. Only a
// process stuck in the kernel needs longer, and then the caller has to know.
const killTimeout = 15 * time.Second

// slowDeath is how long a box may die within its CPU limit.
const slowDeath = 200 * time.Millisecond

// Destroy ends the box and removes everything of it.
func (b *box) Destroy(ctx context.Context) error {
	b.destroy.Lock()
	defer b.destroy.Unlock()
	b.mu.Lock()
	done := b.destroyed
	b.mu.Unlock()
	if done {
		return nil
	}
	if err := b.wipe(); err != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+b.id, "cannot remove all of it: %w", err)
	}
	b.mu.Lock()
	b.destroyed = true
	b.mu.Unlock()
	b.r.leave(b.id, nil)
	return nil
}

// wipe kills and removes, in an order that can be taken up again by anybody
// who knows the id. The id range is free only once nothing is left.
func (b *box) wipe() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	b.closeAhead()
	b.kill(ctx)
	b.mu.Lock()
	s := b.store
	b.store = nil
	b.mu.Unlock()
	err := b.r.removeGroups(ctx, b.id)
	err = errors.Join(err, b.r.removeSocket(b.id))
	if s != nil {
		b.r.trees.Release(s)
		if serr := s.Destroy(); serr != nil {
			err = errors.Join(err, serr)
			b.mu.Lock()
			b.store = s // the next attempt has to prove that it is gone
			b.mu.Unlock()
		}
	}
	if err == nil {
		b.r.slots.free(b.slot, b.id)
	}
	return err
}

// kill ends PID 1, and with it everything in its pid namespace, and waits for that.
func (b *box) kill(ctx context.Context) {
	b.mu.Lock()
	pidfd := b.pidfd
	if pidfd >= 0 {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
	}
	b.mu.Unlock()
	if pidfd < 0 {
		return
	}
	slow := time.NewTimer(slowDeath)
	defer slow.Stop()
	for {
		select {
		case <-b.done:
			return
		case <-slow.C: // dying is work, too, and older kernels make it wait for the box's next share
			b.r.groups.Unthrottle(b.id)
		case <-ctx.Done(): // the removal of the groups will say what is left
			return
		}
	}
}

// removeGroups kills whatever is in the box's groups and removes them.
func (r *Runtime) removeGroups(ctx context.Context, id string) error {
	err := r.groups.Remove(id)
	if err == nil || !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := r.groups.Kill(id); err != nil {
		return err
	}
	if err := r.groups.AwaitEmpty(ctx, id); err != nil {
		return err
	}
	// A thread that is dead for the cgroup2 hierarchy leaves its v1 groups a little later.
	for {
		err := r.groups.Remove(id)
		if err == nil || !errors.Is(err, unix.EBUSY) || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *Runtime) removeSocket(id string) error {
	for _, name := range []string{id, id + spareSuffix} {
		if err := os.Remove(filepath.Join(r.socketDir(), name+".sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
