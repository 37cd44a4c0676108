package netstack

import (
	"bytes"
	"io"
	"net"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/dsec-platform/dsec/internal/egress/relay"
)

// Conn is the box's end of a connection. It is a net.Conn and a relay.End.
type Conn struct {
	*gonet.TCPConn
	ep tcpip.Endpoint
	wq *waiter.Queue
}

var _ relay.End = (*Conn)(nil)

// Abort sends a reset.
func (c *Conn) Abort() { c.ep.Abort() }

// TryWrite implements relay.Sink.
func (c *Conn) TryWrite(b []byte) (int, error) {
	r := bytes.NewReader(b)
	n, err := c.ep.Write(r, tcpip.WriteOptions{})
	if err == nil {
		return int(n), nil
	}
	if _, ok := err.(*tcpip.ErrWouldBlock); ok {
		return int(n), nil
	}
	return int(n), broken(err)
}

// WaitWrite implements relay.Sink.
func (c *Conn) WaitWrite() error {
	const mask = waiter.WritableEvents | waiter.EventErr | waiter.EventHUp
	e, ch := waiter.NewChannelEntry(mask)
	c.wq.EventRegister(&e)
	defer c.wq.EventUnregister(&e)
	if c.ep.Readiness(mask) == 0 {
		<-ch
	}
	return nil
}

// Pump implements relay.End. Bytes go from the stack's own buffers to dst without a copy between.
func (c *Conn) Pump(dst relay.Sink, way relay.Way) error {
	e, ch := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp | waiter.EventRdHUp)
	c.wq.EventRegister(&e)
	defer c.wq.EventUnregister(&e)
	w := &sinkWriter{dst: dst}
	for {
		var res tcpip.ReadResult
		var err tcpip.Error
		w.full, w.n, w.err = false, 0, nil
		way.Turn(func() { res, err = c.ep.Read(w, tcpip.ReadOptions{}) })
		if w.n > 0 {
			c.ep.ModerateRecvBuf(w.n)
			way.Moved(w.n)
		}
		if w.err != nil {
			return w.err
		}
		if w.full {
			if err := dst.WaitWrite(); err != nil {
				return err
			}
			continue
		}
		switch err.(type) {
		case nil:
			if res.Count == 0 && w.n == 0 {
				return nil
			}
		case *tcpip.ErrWouldBlock:
			<-ch
		case *tcpip.ErrClosedForReceive:
			return nil
		default:
			return broken(err)
		}
	}
}

// sinkWriter writes at most a chunk to a sink, and less when the sink is full.
type sinkWriter struct {
	dst  relay.Sink
	n    int
	full bool
	err  error
}

func (w *sinkWriter) Write(b []byte) (int, error) {
	n, err := w.dst.TryWrite(b)
	w.n += n
	switch {
	case err != nil:
		w.err = err
		return n, err
	case n < len(b):
		w.full = true
		return n, io.ErrShortWrite
	}
	return n, nil
}

func broken(err tcpip.Error) error {
	return &net.OpError{Op: "relay", Net: "tcp", Err: stackError(err.String())}
}

type stackError string

func (e stackError) Error() string { return string(e) }
