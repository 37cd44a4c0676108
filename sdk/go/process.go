package dsec

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// Process follows one operation. Recv and Wait are for one goroutine; the other
// methods may be called at the same time. When the connection is lost it attaches
// again where it was, so that nothing is missed and nothing comes twice.
type Process struct {
	s      *Session
	opID   string
	ctx    context.Context
	cancel context.CancelFunc

	stream  eventStream
	pending *Event // received by Start, not yet given by Recv
	stdout  int64  // offsets of the next bytes
	stderr  int64
	done    bool

	stdinMu sync.Mutex
	stdin   int64
}

// eventStream is what the streams of Start and Attach have in common.
type eventStream interface {
	next() (*Event, error)
	Close() error
}

type startStream struct {
	receive func() (*dsecv1.StartResponse, error)
	io.Closer
}

func (s startStream) next() (*Event, error) { r, err := s.receive(); return r.GetEvent(), err }

type attachStream struct {
	receive func() (*dsecv1.AttachResponse, error)
	io.Closer
}

func (s attachStream) next() (*Event, error) { r, err := s.receive(); return r.GetEvent(), err }

// Start starts a command and returns when it runs, or with the reason why it
// does not. The end of ctx detaches; it does not kill.
func (s *Session) Start(ctx context.Context, cmd Command) (*Process, error) {
	m := cmd.message()
	p := s.process(ctx, m.GetOpId())
	req := &dsecv1.StartRequest{SessionId: s.id, Command: m}
	return p.open(func(ctx context.Context) (eventStream, error) {
		st, err := s.c.Execs.Start(ctx, req)
		return startStream{st.Receive, st}, err
	})
}

// Attach follows an operation, running or ended, from byte offsets of its streams.
func (s *Session) Attach(ctx context.Context, opID string, stdoutOffset, stderrOffset int64) (*Process, error) {
	p := s.process(ctx, opID)
	p.stdout, p.stderr = stdoutOffset, stderrOffset
	return p.open(p.attach)
}

// Shell starts an interactive login shell on a terminal of that size, fed by Stdin.
func (s *Session) Shell(ctx context.Context, size Size) (*Process, error) {
	return s.Start(ctx, Command{
		Argv: []string{"/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l"},
		Env:  map[string]string{"TERM": "xterm-256color"}, PTY: &size, StdinStream: true,
	})
}

func (s *Session) process(ctx context.Context, opID string) *Process {
	p := &Process{s: s, opID: opID}
	p.ctx, p.cancel = context.WithCancel(ctx)
	return p
}

func (p *Process) attach(ctx context.Context) (eventStream, error) {
	st, err := p.s.c.Execs.Attach(ctx, &dsecv1.AttachRequest{SessionId: p.s.id, OpId: p.opID, StdoutOffset: p.stdout, StderrOffset: p.stderr})
	return attachStream{st.Receive, st}, err
}

// open opens a stream and waits for its first event, repeating both while the
// server cannot be reached.
func (p *Process) open(f func(context.Context) (eventStream, error)) (*Process, error) {
	if err := p.reopen(f); err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

func (p *Process) reopen(f func(context.Context) (eventStream, error)) error {
	_, err := retry(p.ctx, p.s.c, true, func(ctx context.Context) (struct{}, error) {
		st, err := f(ctx)
		if err != nil {
			return struct{}{}, err
		}
		ev, err := st.next()
		if err != nil {
			st.Close()
			if errors.Is(err, io.EOF) {
				err = errEnded
			}
			return struct{}{}, err
		}
		p.stream, p.pending = st, ev
		return struct{}{}, nil
	})
	return err
}

// errEnded: the server closed a stream before the exit was told.
var errEnded = &Error{Class: ClassInfrastructure, Reason: "unavailable", Scope: "platform", Message: "the stream ended before the operation did", Remedy: "attach again", Retryable: true, lost: true}

// OpID is the operation's id.
func (p *Process) OpID() string { return p.opID }

// Recv gives the next event; io.EOF after the exit.
func (p *Process) Recv() (*Event, error) {
	if p.done {
		return nil, io.EOF
	}
	for {
		ev := p.pending
		p.pending = nil
		if ev == nil {
			var err error
			if ev, err = p.stream.next(); err != nil {
				if err = p.again(err); err != nil {
					return nil, err
				}
				continue
			}
		}
		switch e := ev.GetEvent().(type) {
		case *dsecv1.ExecEvent_Output:
			*p.offset(e.Output.GetStream()) = e.Output.GetOffset() + int64(len(e.Output.GetData()))
		case *dsecv1.ExecEvent_Gap:
			*p.offset(e.Gap.GetStream()) = e.Gap.GetOffset() + e.Gap.GetDropped()
		case *dsecv1.ExecEvent_Exit:
			p.done = true
			p.Close()
		}
		return ev, nil
	}
}

// again attaches after a lost connection; other errors are given back.
func (p *Process) again(err error) error {
	p.stream.Close()
	if errors.Is(err, io.EOF) {
		err = errEnded
	}
	err = AsError(err)
	if p.ctx.Err() != nil || p.s.c.retryFor < 0 || !repeatable(err, true) {
		return err
	}
	if err := p.reopen(p.attach); err != nil {
		return err
	}
	if p.pending.GetStarted() != nil { // it was told already
		p.pending = nil
	}
	return nil
}

func (p *Process) offset(s dsecv1.Stream) *int64 {
	if s == dsecv1.Stream_STREAM_STDERR {
		return &p.stderr
	}
	return &p.stdout
}

// Wait copies what the operation writes, nil writers dropping it, and gives its
// result. Bytes that the server does not keep any more are skipped.
func (p *Process) Wait(stdout, stderr io.Writer) (*Result, error) {
	defer p.Close()
	for {
		ev, err := p.Recv()
		if err != nil {
			return nil, err
		}
		if x := ev.GetExit(); x != nil {
			return x, nil
		}
		c := ev.GetOutput()
		w := stdout
		if c.GetStream() == dsecv1.Stream_STREAM_STDERR {
			w = stderr
		}
		if c == nil || w == nil {
			continue
		}
		if _, err := w.Write(c.GetData()); err != nil {
			return nil, err
		}
	}
}

// Close detaches, also from a Recv that waits. The operation goes on.
func (p *Process) Close() error {
	p.cancel() // which ends the stream, whichever it is now
	return nil
}

// Signal sends a signal to the process group, or with tree to every process of the operation.
func (p *Process) Signal(ctx context.Context, signal string, tree bool) error {
	return p.s.Signal(ctx, p.opID, signal, tree)
}

// Resize changes the terminal's size.
func (p *Process) Resize(ctx context.Context, size Size) error {
	_, err := call(ctx, p.s.c, true, p.s.c.Execs.Resize, &dsecv1.ResizeRequest{SessionId: p.s.id, OpId: p.opID, Pty: &dsecv1.Pty{Rows: uint32(size.Rows), Cols: uint32(size.Cols)}})
	return err
}

// maxStdin is the most that one write carries.
const maxStdin = 1 << 20

// Stdin gives the input of a command started with StdinStream, from its begin:
// take it once. Close sends the end. A write may be lost only if it failed.
func (p *Process) Stdin(ctx context.Context) io.WriteCloser { return &stdin{p, ctx} }

type stdin struct {
	p   *Process
	ctx context.Context
}

func (w *stdin) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		end := min(n+maxStdin, len(b))
		if err := w.send(b[n:end], false); err != nil {
			return n, err
		}
		n = end
	}
	return n, nil
}

func (w *stdin) Close() error { return w.send(nil, true) }

func (w *stdin) send(b []byte, eof bool) error {
	p := w.p
	p.stdinMu.Lock()
	defer p.stdinMu.Unlock()
	end := p.stdin + int64(len(b))
	for {
		rest := b[int64(len(b))-(end-p.stdin):]
		r, err := call(w.ctx, p.s.c, true, p.s.c.Execs.WriteStdin, &dsecv1.WriteStdinRequest{SessionId: p.s.id, OpId: p.opID, Offset: p.stdin, Data: rest, Eof: eof})
		if err != nil {
			return err
		}
		if r.GetNext() < p.stdin || r.GetNext() > end {
			return &Error{Class: ClassUser, Reason: "conflict", Scope: "box", Object: "op " + p.opID, Message: "another writer feeds this input", Remedy: "write from one place"}
		}
		moved := r.GetNext() > p.stdin
		p.stdin = r.GetNext()
		if p.stdin == end {
			return nil
		}
		if !moved { // the command does not read
			select {
			case <-w.ctx.Done():
				return AsError(w.ctx.Err())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}
