package native

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/rootfs"
)

// Claim turns a pooled box into the one that was asked for.
func (b *box) Claim(ctx context.Context, c runtime.Claim) error {
	filter, err := compileSeccomp(&c)
	if err != nil {
		return err
	}
	b.mu.Lock()
	again, conn := b.claimed, b.claimConn
	b.claimed, b.claimConn = true, nil
	b.mu.Unlock()
	if conn != nil {
		defer conn.Close()
	}
	if again {
		return errdefs.Userf(errdefs.Conflict, "box "+b.id, "claim another one", "it was claimed already")
	}
	if err := b.SetLimits(ctx, c.Limits); err != nil {
		return err
	}
	msg := setupOf(&c, filter)
	msg.Kind = guestproto.SetupClaim
	extras, err := b.claimTree(&c, msg)
	if err != nil {
		return b.explain(err)
	}
	defer extras.Close()
	msg.FDs = extras.Desc
	if conn != nil {
		err = b.exchange(ctx, conn, msg, extras.FDs)
	} else { // an adopted box
		err = b.setup(ctx, msg, extras.FDs)
	}
	if err != nil {
		return createError(ctx, b.id, err)
	}
	b.hangUpLater()
	return nil
}

// aheadFor is how long a connection for the first op is kept before there is one: the guest of a box that nobody uses
// rests only when nobody is connected to it.
const aheadFor = 5 * time.Second

// hangUpLater closes the connection that was made ahead if the first op takes its time.
func (b *box) hangUpLater() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ahead := b.dialled; ahead != nil {
		time.AfterFunc(aheadFor, func() {
			b.mu.Lock()
			unused := b.dialled == ahead
			if unused {
				b.dialled = nil
			}
			b.mu.Unlock()
			if unused {
				ahead.Close()
			}
		})
	}
}

// connectAhead makes the connections of a pooled box's claim and of its first op now, when nobody
// waits for them. What cannot be made is made then.
func (b *box) connectAhead() {
	setup, err := b.connect(guestproto.PreambleSetup)
	if err != nil {
		return
	}
	control, err := b.connect(guestproto.PreambleControl)
	if err != nil {
		setup.Close()
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claimConn, b.dialled = setup, control
}

// claimTree makes the store what the claim wants and builds the mounts that the box lacks.
func (b *box) claimTree(c *runtime.Claim, msg *guestproto.Setup) (*rootfs.Tree, error) {
	var fresh []string
	for _, path := range c.WritableDirs {
		path = filepath.Clean(path)
		if !slices.ContainsFunc(b.dirs, func(d rootfs.Dir) bool { return d.Path == path }) {
			fresh = append(fresh, path)
		}
	}
	if b.writable {
		msg.WritableDirs, fresh = fresh, nil
	}
	if err := b.claimStore(c, len(fresh) > 0); err != nil {
		return nil, err
	}
	if len(fresh) == 0 && len(c.Mounts) == 0 {
		return &rootfs.Tree{}, nil
	}
	had := len(b.dirs)
	if err := b.addDirs(fresh); err != nil {
		return nil, err
	}
	spec := &rootfs.Spec{Base: slotBase(b.slot), Root: b.root, Dirs: b.dirs[had:], Data: c.Mounts}
	proc := "/proc/" + strconv.Itoa(b.pid)
	var err error
	if spec.UserNS, err = unix.Open(proc+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, err
	}
	defer unix.Close(spec.UserNS)
	root := -1
	if !b.writable {
		// Nothing of an agent has run in the box yet: its root is what was built.
		if root, err = unix.Open(proc+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return nil, err
		}
		defer unix.Close(root)
	}
	return b.r.trees.Extras(spec, root)
}

// claimStore gives the store the claim's kind and size. A store of another
// kind cannot be had any more: the box is refused, and made cold.
func (b *box) claimStore(c *runtime.Claim, needed bool) error {
	if c.StoreSize <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	kind := storeKind(&runtime.Config{RootWritable: b.writable, Claim: *c}, c.StoreSize)
	if b.store == nil {
		if !needed {
			return nil
		}
		s, err := b.r.stores.Make(b.id, kind, c.StoreSize, slotBase(b.slot))
		b.store = s
		return err
	}
	if !b.store.Is(kind) {
		return fmt.Errorf("the pooled box has a %s store: %w", b.store.Kind(), errors.ErrUnsupported)
	}
	return b.store.Resize(c.StoreSize)
}
