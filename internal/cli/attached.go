package cli

import (
	"context"
	"io"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// attachedProcess is one that was started by somebody else: its input goes on
// where theirs ended.
type attachedProcess struct {
	remoteProcess
	client  *dsec.Client
	session string
}

func (p attachedProcess) stdin(ctx context.Context) io.WriteCloser {
	return &continuedStdin{p: p, ctx: ctx, at: -1}
}

type continuedStdin struct {
	p   attachedProcess
	ctx context.Context
	at  int64 // -1 before the first write
}

func (w *continuedStdin) Write(b []byte) (int, error) {
	if w.at < 0 {
		if err := w.send(nil, false); err != nil { // asks where the input stands
			return 0, err
		}
	}
	for n := 0; n < len(b); {
		before := w.at
		if err := w.send(b[n:], false); err != nil {
			return n, err
		}
		if w.at <= before {
			return n, io.ErrShortWrite
		}
		n += int(w.at - before)
	}
	return len(b), nil
}

func (w *continuedStdin) Close() error { return w.send(nil, true) }

func (w *continuedStdin) send(b []byte, eof bool) error {
	r, err := w.p.client.Execs.WriteStdin(w.ctx, &dsecv1.WriteStdinRequest{
		SessionId: w.p.session, OpId: w.p.OpID(), Offset: max(w.at, 0), Data: b, Eof: eof})
	if err != nil {
		return dsec.AsError(err)
	}
	w.at = r.GetNext()
	return nil
}
