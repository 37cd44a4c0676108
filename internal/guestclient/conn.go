package guestclient

import (
	"context"
	"net"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// Version of the protocol that this client speaks; it serves guests of the major before, too.
const (
	major = 1
	minor = 0
)

// Client is the node's end of one control connection. An idle one costs a
// goroutine and a small read buffer.
type Client struct{ files }

var _ API = (*Client)(nil)

// New greets the guest at the other end of conn, whose preamble was sent. It
// owns conn from then on, also when it fails.
func New(ctx context.Context, conn net.Conn) (*Client, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	m, err := mux.Connect(bounded{conn}, mux.Config{Hello: guestproto.Hello{Major: major, Minor: minor}})
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = m.Close()
		return nil, asError(err)
	}
	select {
	case <-m.Ready():
	case <-m.Done():
		return nil, asError(m.Err())
	case <-ctx.Done():
		_ = m.Close()
		return nil, asError(ctx.Err())
	}
	if v := m.Peer().Major; v+1 < major || v > major {
		_ = m.Close()
		return nil, errdefs.Userf(errdefs.Unsupported, "guest", "create a new session", "the guest speaks protocol %d, this node %d", v, major)
	}
	return &Client{files{m}}, nil
}

// bounded fails a write that the guest does not take.
type bounded struct{ net.Conn }

func (b bounded) Write(p []byte) (int, error) {
	if err := b.SetWriteDeadline(time.Now().Add(mux.StallAfter)); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}

// Hello is the guest's.
func (c *Client) Hello() guestproto.Hello { return c.conn.Peer() }

// Done is closed when the connection is lost.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }

// Close ends the connection; ops go on in the box.
func (c *Client) Close() error { return c.conn.Close() }

// Ping answers when the guest is alive and reading.
func (c *Client) Ping(ctx context.Context) error {
	ch, err := c.conn.Ping()
	if err != nil {
		return asError(err)
	}
	t := time.NewTimer(mux.StallAfter)
	defer t.Stop()
	select {
	case <-ch:
		return nil
	case <-t.C:
		c.conn.Fail(mux.ErrStalled)
		return asError(mux.ErrStalled)
	case <-c.conn.Done():
		return asError(c.conn.Err())
	case <-ctx.Done():
		return asError(ctx.Err())
	}
}
