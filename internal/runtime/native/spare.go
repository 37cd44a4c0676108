package native

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/cgroup"
)

// spare is what Prepare adds to a box that nobody has asked for yet: its guest
// runs in its namespaces and groups and waits for its boot on boot. The guest ends
// when that connection does: a spare does not outlive its daemon.
type spare struct {
	boot    *net.UnixConn
	control *net.UnixConn // already accepted by the guest; the box's first Dial gives it
}

// spareSuffix marks the name of a spare's socket, until the spare becomes a box. No box id contains ".".
const spareSuffix = ".spare"

var _ runtime.Preparer = (*Runtime)(nil)

// Prepare implements runtime.Preparer.
func (r *Runtime) Prepare(ctx context.Context, id string) error {
	if !validID.MatchString(id) {
		return errdefs.Userf(errdefs.InvalidArgument, "box "+id, "use a DNS label", "not a valid box id")
	}
	if !r.enter(id) {
		return errdefs.Userf(errdefs.AlreadyExists, "box "+id, "choose an unused id", "a box with this id exists")
	}
	slot, err := r.slots.take(id)
	if err != nil {
		r.leave(id, nil)
		return err
	}
	b := r.newBox(id, slot)
	if err := r.prepare(ctx, b); err != nil {
		err = errors.Join(err, b.wipe())
		r.leave(id, nil)
		return createError(ctx, id, err)
	}
	r.leave(id, b)
	return nil
}

func (r *Runtime) prepare(ctx context.Context, b *box) error {
	s := &spare{}
	b.spare = s
	spawned, birth, err := r.startGuest(ctx, b, b.id+spareSuffix, runtime.Limits{Memory: spareMemory, Pids: sparePids})
	if err != nil {
		return err
	}
	defer birth.Close()
	child := <-spawned
	if child.err != nil {
		return child.err
	}
	if err := b.born(child.pid, child.pidfd); err != nil {
		return err
	}
	if s.boot, err = r.connect(b.id+spareSuffix, guestproto.PreambleSetup); err != nil {
		return err
	}
	msg := &guestproto.Setup{Kind: guestproto.SetupPrepare}
	if err := b.exchange(ctx, s.boot, msg, birthFDs(birth, msg)); err != nil {
		return err
	}
	s.control, err = r.connect(b.id+spareSuffix, guestproto.PreambleControl)
	return err
}

// Limits of a spare, which has no agent.
const (
	spareMemory = 8 << 20
	sparePids   = 64
)

// birthFDs describes the groups' descriptors in the message and gives them in the same order.
func birthFDs(birth *cgroup.Birth, msg *guestproto.Setup) (fds []int) {
	add := func(role guestproto.FDRole, fd int) {
		msg.FDs = append(msg.FDs, guestproto.SetupFD{Role: role})
		fds = append(fds, fd)
	}
	for _, fd := range birth.AgentTasks {
		add(guestproto.FDAgentTasks, fd)
	}
	add(guestproto.FDAgentCgroup, birth.AgentDir)
	add(guestproto.FDAgentMemory, birth.Memory)
	add(guestproto.FDAgentPids, birth.Pids)
	return fds
}

// takeSpare gives the spare that Prepare has made for this id, if there is one, and
// claims its id like enter.
func (r *Runtime) takeSpare(id string) *box {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.boxes[id]
	if b == nil || b.spare == nil {
		return nil
	}
	r.boxes[id] = nil
	return b
}

// finish makes a spare the box that is asked for. After an error all of it is gone.
func (r *Runtime) finish(ctx context.Context, cfg *runtime.Config, filter []byte, b *box) error {
	err := r.finishSpare(ctx, cfg, filter, b)
	if err != nil {
		return errors.Join(err, b.wipe())
	}
	return nil
}

// errSpareUnfit is a spare that cannot become the box that is asked for: that is made anew.
var errSpareUnfit = errors.New("the spare cannot be used")

func (r *Runtime) finishSpare(ctx context.Context, cfg *runtime.Config, filter []byte, b *box) error {
	s := b.spare
	if !b.alive() || cfg.Limits.ReadBPS > 0 || cfg.Limits.WriteBPS > 0 { // its groups have no such limit
		return errSpareUnfit
	}
	if err := os.Rename(r.socketPath(b.id+spareSuffix), r.socketPath(b.id)); err != nil {
		return err
	}
	if err := r.groups.SetLimits(b.id, cfg.Limits); err != nil {
		return err
	}
	b.mu.Lock() // the memory monitor knows the box already
	b.limits, b.root = cfg.Limits, cfg.Root
	b.mu.Unlock()
	if err := b.makeStore(cfg); err != nil {
		return err
	}
	err := b.boot(cfg, filter, nil, func(msg *guestproto.Setup, fds []int) error { return b.exchange(ctx, s.boot, msg, fds) })
	if err != nil {
		return err
	}
	s.boot.Close()
	b.mu.Lock()
	b.spare, b.dialled = nil, s.control
	b.mu.Unlock()
	if !cfg.Pooled {
		b.hangUpLater()
	}
	return nil
}

// closeAhead closes the connections that were made ahead. A spare's guest ends by that.
func (b *box) closeAhead() {
	b.mu.Lock()
	defer b.mu.Unlock()
	conns := []*net.UnixConn{b.dialled, b.claimConn}
	if s := b.spare; s != nil {
		conns = append(conns, s.boot, s.control)
	}
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
	b.spare, b.dialled, b.claimConn = nil, nil, nil
}
