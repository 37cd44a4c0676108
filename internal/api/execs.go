package api

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect/v2"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// execs serves ExecService.
type execs struct{ *API }

// guest gives the guest of a session; release counts as the end of the activity.
func (a *API) guest(ctx context.Context, session string) (guestclient.API, func(), error) {
	if err := checkSession(session); err != nil {
		return nil, nil, err
	}
	return a.cfg.Control.Guest(ctx, callerOf(ctx).project, session)
}

// opHeader tells a client the id that the server chose for its operation.
func opHeader(ctx context.Context, id string) {
	if info, ok := connect.CallInfoForServerContext(ctx); ok {
		info.ResponseHeader().Set("Dsec-Op-Id", id)
	}
}

// Run waits for the command's end. When the client goes away the wait ends and
// the command goes on; its result is kept under its id.
func (x *execs) Run(ctx context.Context, q *dsecv1.RunRequest) (*dsecv1.RunResponse, error) {
	req, made, err := domainCommand(q.GetCommand())
	if err != nil {
		return nil, err
	}
	g, release, err := x.guest(ctx, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	if made {
		opHeader(ctx, req.OpID)
	}
	res, err := g.Run(ctx, req)
	if !req.Background || err != nil { // one in the background has only begun
		x.metrics.exec(res, err)
	}
	if err != nil {
		return nil, err
	}
	if res.Error != nil {
		return nil, guestError(res.Error)
	}
	if res.OpID == "" {
		res.OpID = req.OpID
	}
	return &dsecv1.RunResponse{Result: wireResult(res, q.GetText())}, nil
}

func (x *execs) Start(ctx context.Context, q *dsecv1.StartRequest, out dsecv1connect.ExecServiceStartServerStream) error {
	req, _, err := domainCommand(q.GetCommand())
	if err != nil {
		return err
	}
	g, release, err := x.guest(ctx, q.GetSessionId())
	if err != nil {
		return err
	}
	defer release()
	stream, err := g.Start(ctx, req)
	if err != nil {
		x.metrics.exec(nil, err)
		return err
	}
	opHeader(ctx, stream.OpID())
	if err := out.SendHeaders(); err != nil {
		stream.Close()
		return err
	}
	return follow(ctx, counted{stream, x.metrics}, func(ev *dsecv1.ExecEvent) error {
		return out.Send(&dsecv1.StartResponse{Event: ev})
	})
}

func (x *execs) Attach(ctx context.Context, q *dsecv1.AttachRequest, out dsecv1connect.ExecServiceAttachServerStream) error {
	if err := checkOpID(q.GetOpId()); err != nil {
		return err
	}
	if q.GetStdoutOffset() < 0 || q.GetStderrOffset() < 0 {
		return bad("stdout_offset", "count from 0", "an offset is negative")
	}
	g, release, err := x.guest(ctx, q.GetSessionId())
	if err != nil {
		return err
	}
	defer release()
	stream, err := g.Attach(ctx, q.GetOpId(), q.GetStdoutOffset(), q.GetStderrOffset())
	if err != nil {
		return err
	}
	if err := out.SendHeaders(); err != nil {
		stream.Close()
		return err
	}
	return follow(ctx, stream, func(ev *dsecv1.ExecEvent) error {
		return out.Send(&dsecv1.AttachResponse{Event: ev})
	})
}

// counted counts the end of a command that is followed from its start.
type counted struct {
	guestclient.ExecStream
	m *metrics
}

func (c counted) Recv() (guestproto.ExecEvent, error) {
	ev, err := c.ExecStream.Recv()
	if err == nil && ev.Kind == guestproto.EventExit {
		c.m.exec(ev.Result, nil)
	}
	return ev, err
}

// follow passes an operation's events on until its end, or detaches.
func follow(ctx context.Context, stream guestclient.ExecStream, send func(*dsecv1.ExecEvent) error) error {
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		if w := wireEvent(stream.OpID(), &ev); w != nil {
			if err := send(w); err != nil {
				return err
			}
		}
	}
}

func (x *execs) WriteStdin(ctx context.Context, q *dsecv1.WriteStdinRequest) (*dsecv1.WriteStdinResponse, error) {
	if err := checkOpID(q.GetOpId()); err != nil {
		return nil, err
	}
	if q.GetOffset() < 0 {
		return nil, bad("offset", "count from 0", "is negative")
	}
	if len(q.GetData()) > maxStdinWrite {
		return nil, bad("data", "send at most 4 MiB at a time", "has %d bytes", len(q.GetData()))
	}
	g, release, err := x.guest(ctx, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	next, err := g.WriteStdin(ctx, q.GetOpId(), q.GetOffset(), q.GetData(), q.GetEof())
	if err != nil {
		return nil, err
	}
	return &dsecv1.WriteStdinResponse{Next: next}, nil
}

func (x *execs) Resize(ctx context.Context, q *dsecv1.ResizeRequest) (*dsecv1.ResizeResponse, error) {
	rows, cols, err := ptySize("pty", q.GetPty())
	if err == nil {
		err = checkOpID(q.GetOpId())
	}
	if err != nil {
		return nil, err
	}
	g, release, err := x.guest(ctx, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	return &dsecv1.ResizeResponse{}, g.Resize(ctx, q.GetOpId(), rows, cols)
}

func (x *execs) Signal(ctx context.Context, q *dsecv1.SignalRequest) (*dsecv1.SignalResponse, error) {
	sig, err := signalName(q.GetSignal())
	if err == nil {
		err = checkOpID(q.GetOpId())
	}
	if err != nil {
		return nil, err
	}
	g, release, err := x.guest(ctx, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	return &dsecv1.SignalResponse{}, g.Signal(ctx, q.GetOpId(), sig, q.GetTree())
}

func (x *execs) ListOps(ctx context.Context, q *dsecv1.ListOpsRequest) (*dsecv1.ListOpsResponse, error) {
	g, release, err := x.guest(ctx, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	ops, err := g.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &dsecv1.ListOpsResponse{Operations: make([]*dsecv1.Operation, len(ops))}
	for i := range ops {
		out.Operations[i] = wireOperation(&ops[i], false)
	}
	return out, nil
}

func (x *execs) GetOp(ctx context.Context, q *dsecv1.GetOpRequest) (*dsecv1.GetOpResponse, error) {
	if err := checkOpID(q.GetOpId()); err != nil {
		return nil, err
	}
	g, release, err := x.guest(ctx, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	var result *guestproto.Result
	if q.GetWait() {
		if result, err = waitOp(ctx, g, q.GetOpId()); err != nil {
			return nil, err
		}
	}
	info, err := g.Get(ctx, q.GetOpId())
	if err != nil {
		return nil, err
	}
	if result != nil {
		info.Result = result
	}
	return &dsecv1.GetOpResponse{Operation: wireOperation(info, q.GetText())}, nil
}

func (x *execs) CloseShell(ctx context.Context, q *dsecv1.CloseShellRequest) (*dsecv1.CloseShellResponse, error) {
	if err := checkShellSession("shell_session", q.GetShellSession(), true); err != nil {
		return nil, err
	}
	g, release, err := x.guest(ctx, q.GetSessionId())
	if err != nil {
		return nil, err
	}
	defer release()
	return &dsecv1.CloseShellResponse{}, g.CloseShell(ctx, q.GetShellSession())
}
