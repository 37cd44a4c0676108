package native

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

func setupOf(c *runtime.Claim, filter []byte) *guestproto.Setup {
	return &guestproto.Setup{
		TmpSize: c.TmpSize, Hostname: c.Hostname, User: c.User, Env: c.Env,
		NewPrivileges: c.NewPrivileges, Seccomp: filter,
		NoFile: c.Rlimits.NoFile, FSize: c.Rlimits.FSize, Stack: c.Rlimits.Stack,
	}
}

// setup sends one setup message and waits for the guest's answer.
func (b *box) setup(ctx context.Context, msg *guestproto.Setup, fds []int) error {
	conn, err := b.connect(guestproto.PreambleSetup)
	if err != nil {
		return err
	}
	defer conn.Close()
	return b.exchange(ctx, conn, msg, fds)
}

// errSetup is a guest that does not answer, in contrast to one that says what it cannot do.
var errSetup = errors.New("the guest did not take its set-up")

// exchange sends one setup message over conn and waits for the answer. The end of ctx closes conn.
func (b *box) exchange(ctx context.Context, conn *net.UnixConn, msg *guestproto.Setup, fds []int) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var reply guestproto.SetupReply
	var sendErr error
	err = raw.Control(func(fd uintptr) { sendErr = guestproto.SendSetup(int(fd), msg, fds) })
	if err = errors.Join(err, sendErr); err == nil {
		err = guestproto.ReadSetupReply(conn, &reply)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errSetup, err)
	}
	if w := reply.Error; w != nil {
		if w.Class == string(errdefs.User) {
			return b.refused(w)
		}
		return fmt.Errorf("the guest could not set up the box: %s", w.Message)
	}
	return nil
}

// refused is what the guest found wrong with what was asked for.
func (b *box) refused(w *guestproto.WireError) error {
	message, object := w.Message, "box "+b.id
	switch {
	case strings.HasPrefix(w.Object, "field "):
		object, message = w.Object, "template "+b.root.Template+": "+w.Message
	case strings.HasPrefix(w.Object, "/"):
		object = "path " + w.Object
	}
	return errdefs.Userf(errdefs.Reason(w.Reason), object, w.Remedy, "%s", message)
}
