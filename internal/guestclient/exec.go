package guestclient

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// Run starts an exec (or attaches by op id) and waits for its end. When the
// command could not be started, both the result and its error are given.
func (c *Client) Run(ctx context.Context, req guestproto.ExecRequest) (*guestproto.Result, error) {
	k, err := c.openExec(ctx, &req, false)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	col := collector{limit: outputLimit(&req)}
	for {
		var ev guestproto.ExecEvent
		if err := k.answer(&ev); err != nil {
			return nil, err
		}
		if err := checkEvent(&ev); err != nil {
			return nil, c.broken(err)
		}
		if ev.Kind != guestproto.EventExit {
			if err := col.add(&ev); err != nil {
				return nil, c.broken(err)
			}
			continue
		}
		r := ev.Result
		if err := col.finish(r); err != nil {
			return nil, c.broken(err)
		}
		if r.Error != nil {
			return r, fromWire(r.Error)
		}
		return r, nil
	}
}

func outputLimit(r *guestproto.ExecRequest) int {
	if r.MaxOutput <= 0 {
		return guestproto.DefaultOutput
	}
	return int(min(r.MaxOutput, guestproto.MaxOutput))
}

// broken ends the connection: the guest said what cannot be.
func (f files) broken(err error) error {
	err = fmt.Errorf("%w: %w", mux.ErrProtocol, err)
	f.conn.Fail(err)
	return asError(err)
}

// openExec opens the stream and sends what does not fit its first frame.
func (c *Client) openExec(ctx context.Context, req *guestproto.ExecRequest, follow bool) (*stream, error) {
	if req.OpID == "" {
		req.OpID = "op-" + rand.Text()
	}
	if len(req.Stdin) > guestproto.MaxStdin {
		return nil, errdefs.Userf(errdefs.TooLarge, "stdin", "stream it instead", "%d bytes were given whole, %d are allowed", len(req.Stdin), guestproto.MaxStdin)
	}
	// The id is what the digest is bound to, not a part of it.
	bound := *req
	bound.OpID = ""
	digest := sha256.Sum256(guestproto.Marshal(nil, &bound))
	open := guestproto.ExecOpen{Req: *req, Digest: digest[:], Follow: follow}
	stdin := req.Stdin
	if len(stdin) <= guestproto.MaxInlineStdin {
		return openStream(ctx, c.conn, guestproto.KindExec, &open, true)
	}
	open.Req.Stdin, open.StdinFollows = nil, int64(len(stdin))
	k, err := openStream(ctx, c.conn, guestproto.KindExec, &open, false)
	if err != nil {
		return nil, err
	}
	// A refusal shows at the first receive, with its reason.
	if _, err := k.Write(stdin); err == nil {
		_ = k.s.CloseSend()
	}
	return k, nil
}

// Start starts an exec and follows it. The op exists when Start returns.
func (c *Client) Start(ctx context.Context, req guestproto.ExecRequest) (ExecStream, error) {
	k, err := c.openExec(ctx, &req, true)
	if err != nil {
		return nil, err
	}
	s := &execStream{c: c, stream: k, op: req.OpID}
	first, err := s.Recv()
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	s.first = &first
	return s, nil
}

// Attach follows an op.
func (c *Client) Attach(ctx context.Context, op guestproto.OpID, stdout, stderr int64) (ExecStream, error) {
	k, err := openStream(ctx, c.conn, guestproto.KindAttach, &guestproto.OpRequest{OpID: op, Offset: stdout, StderrOffset: stderr}, true)
	if err != nil {
		return nil, err
	}
	return &execStream{c: c, stream: k, op: op}, nil
}

// execStream is an attached exec.
type execStream struct {
	*stream
	c     *Client
	op    guestproto.OpID
	first *guestproto.ExecEvent // received by Start
	over  bool
}

func (s *execStream) OpID() guestproto.OpID { return s.op }

// Recv gives the next event.
func (s *execStream) Recv() (guestproto.ExecEvent, error) {
	if s.first != nil {
		ev := *s.first
		s.first = nil
		return ev, nil
	}
	if s.over {
		return guestproto.ExecEvent{}, io.EOF
	}
	var ev guestproto.ExecEvent
	if err := s.answer(&ev); err != nil {
		return ev, err
	}
	if err := checkEvent(&ev); err != nil {
		return guestproto.ExecEvent{}, s.c.broken(err)
	}
	if ev.Kind == guestproto.EventExit {
		s.over = true
		_ = s.Close()
	}
	return ev, nil
}

// Get gives an op's state.
func (c *Client) Get(ctx context.Context, op guestproto.OpID) (*guestproto.OpInfo, error) {
	var info guestproto.OpInfo
	if err := call(ctx, c.conn, guestproto.KindGet, &guestproto.OpRequest{OpID: op}, &info); err != nil {
		return nil, err
	}
	return &info, nil
}

// A listing is bounded by number and size: more than a guest may have.
const (
	maxList      = 1 << 12
	maxListBytes = 32 << 20
)

// List gives all ops, oldest first.
func (c *Client) List(ctx context.Context) ([]guestproto.OpInfo, error) {
	k, err := openStream(ctx, c.conn, guestproto.KindList, &guestproto.OpRequest{}, true)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	var list []guestproto.OpInfo
	size := 0
	for {
		var info guestproto.OpInfo
		switch err := k.recv(&info); {
		case err == io.EOF:
			return list, nil
		case err != nil:
			return nil, err
		case len(list) >= maxList || size > maxListBytes:
			return nil, c.broken(errors.New("endless list"))
		}
		if info.Result != nil { // a listing has no output, and what is not kept costs nothing
			info.Result.Stdout.Head, info.Result.Stdout.Tail, info.Result.Stderr.Head, info.Result.Stderr.Tail = nil, nil, nil, nil
		}
		for _, a := range info.Argv {
			size += len(a)
		}
		size += len(info.Cwd) + len(info.User) + len(info.ShellSession) + len(info.Note) + 512
		list = append(list, info)
	}
}

// stdinChunk is what one request carries.
const stdinChunk = 256 << 10

// WriteStdin appends to a streamed stdin.
func (c *Client) WriteStdin(ctx context.Context, op guestproto.OpID, offset int64, data []byte, eof bool) (int64, error) {
	for {
		n := min(len(data), stdinChunk)
		r := guestproto.OpRequest{OpID: op, Offset: offset, Data: data[:n], EOF: eof && n == len(data)}
		var a guestproto.Reply
		if err := call(ctx, c.conn, guestproto.KindStdin, &r, &a); err != nil {
			return offset, err
		}
		offset, data = a.N, data[n:]
		if len(data) == 0 {
			return offset, nil
		}
	}
}

// Resize sets a terminal's size.
func (c *Client) Resize(ctx context.Context, op guestproto.OpID, rows, cols uint16) error {
	return call(ctx, c.conn, guestproto.KindResize, &guestproto.OpRequest{OpID: op, Rows: rows, Cols: cols}, &guestproto.Reply{})
}

// Signal sends a signal.
func (c *Client) Signal(ctx context.Context, op guestproto.OpID, signal string, tree bool) error {
	return call(ctx, c.conn, guestproto.KindSignal, &guestproto.OpRequest{OpID: op, Signal: signal, Tree: tree}, &guestproto.Reply{})
}

// CloseShell forgets a shell session and ends what runs in it.
func (c *Client) CloseShell(ctx context.Context, name string) error {
	return call(ctx, c.conn, guestproto.KindCloseShell, &guestproto.OpRequest{Name: name}, &guestproto.Reply{})
}
