package guestclient

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// Dial connects inside the box.
func (c *Client) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	s, err := openStream(ctx, c.conn, guestproto.KindDial, &guestproto.DialRequest{Network: network, Addr: addr}, false)
	if err != nil {
		return nil, err
	}
	if err := s.answer(&guestproto.Reply{}); err != nil {
		_ = s.Close()
		return nil, err
	}
	s.stop() // ctx was for the dialling only
	return &streamConn{s: s.s, addr: boxAddr{network, addr}}, nil
}

// boxAddr is an address inside a box.
type boxAddr struct{ network, addr string }

func (a boxAddr) Network() string { return a.network }
func (a boxAddr) String() string  { return a.addr }

// streamConn is a dialled stream as a net.Conn.
type streamConn struct {
	s           *mux.Stream
	addr        boxAddr
	read, write deadline
	wmu, rmu    sync.Mutex // a net.Conn may be used by several goroutines, a stream by one each way
}

func (c *streamConn) Read(p []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	n, err := c.s.ReadUntil(p, c.read.done())
	return n, c.explain(err)
}

func (c *streamConn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	n, err := c.s.WriteUntil(p, c.write.done())
	return n, c.explain(err)
}

func (c *streamConn) explain(err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case err == mux.ErrClosed && c.s.Conn().Err() == nil:
		return net.ErrClosed
	}
	if _, ok := err.(net.Error); ok { // a deadline
		return err
	}
	return asError(err)
}

// CloseWrite ends this side's direction.
func (c *streamConn) CloseWrite() error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.explain(c.s.CloseSend())
}

func (c *streamConn) Close() error         { return c.s.Close() }
func (c *streamConn) LocalAddr() net.Addr  { return boxAddr{c.addr.network, "node"} }
func (c *streamConn) RemoteAddr() net.Addr { return c.addr }

func (c *streamConn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

func (c *streamConn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

func (c *streamConn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// deadline is a channel that is closed when a time has come.
type deadline struct {
	mu     sync.Mutex
	ch     chan struct{}
	closed bool
	timer  *time.Timer
}

func (d *deadline) done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ch == nil {
		d.ch = make(chan struct{})
	}
	return d.ch
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.ch == nil || d.closed {
		d.ch, d.closed = make(chan struct{}), false
	}
	if t.IsZero() {
		return
	}
	ch := d.ch
	fire := func() {
		if d.ch == ch && !d.closed {
			close(ch)
			d.closed = true
		}
	}
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			fire()
		})
		return
	}
	fire()
}
