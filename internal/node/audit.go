package node

import (
	"context"
	"io"
	"net"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// auditGuest is the guest of a box whose run time is over. Its processes were
// killed: ops, their output and files can be read, and everything that executes or changes
// is refused with class limit, reason timed_out.
type auditGuest struct {
	guestclient.API
	session *session
}

var _ guestclient.API = auditGuest{}

func (a auditGuest) refuse() error { return unfit(a.session, Audit) }

func (a auditGuest) Run(context.Context, guestproto.ExecRequest) (*guestproto.Result, error) {
	return nil, a.refuse()
}

func (a auditGuest) Start(context.Context, guestproto.ExecRequest) (guestclient.ExecStream, error) {
	return nil, a.refuse()
}

func (a auditGuest) WriteStdin(context.Context, guestproto.OpID, int64, []byte, bool) (int64, error) {
	return 0, a.refuse()
}

func (a auditGuest) Resize(context.Context, guestproto.OpID, uint16, uint16) error { return a.refuse() }

func (a auditGuest) Signal(context.Context, guestproto.OpID, string, bool) error { return a.refuse() }

func (a auditGuest) CloseShell(context.Context, string) error { return a.refuse() }

func (a auditGuest) WriteFile(context.Context, guestclient.WriteOptions, io.Reader) (*guestproto.FileInfo, error) {
	return nil, a.refuse()
}

func (a auditGuest) Mkdir(context.Context, guestproto.OpID, string, string, uint32, bool) error {
	return a.refuse()
}

func (a auditGuest) Move(context.Context, guestproto.OpID, string, string, string, bool) error {
	return a.refuse()
}

func (a auditGuest) Remove(context.Context, guestproto.OpID, string, string, bool) error {
	return a.refuse()
}

func (a auditGuest) Link(context.Context, guestproto.OpID, string, string, string, bool) error {
	return a.refuse()
}

func (a auditGuest) Chmod(context.Context, guestproto.OpID, string, string, guestclient.ChmodOptions) error {
	return a.refuse()
}

func (a auditGuest) TarIn(context.Context, guestproto.OpID, string, string, io.Reader) (int64, error) {
	return 0, a.refuse()
}

func (a auditGuest) Dial(context.Context, string, string) (net.Conn, error) { return nil, a.refuse() }
