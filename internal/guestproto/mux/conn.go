package mux

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// MaxStreams bounds the streams that a server serves at a time.
const MaxStreams = 8192

// ErrClosed ends the streams of a connection that was closed on this side.
var ErrClosed = errors.New("guest connection closed")

// ErrLost ends the streams of a connection that the peer closed.
var ErrLost = errors.New("guest closed the connection")

// Config of a Conn.
type Config struct {
	Hello guestproto.Hello
	// Accept serves a stream that the peer opened, on a goroutine of its own. It
	// is nil on the client's side: only clients open streams.
	Accept func(s *Stream, body []byte)
}

// Conn multiplexes streams over one byte stream. One side is the client: it
// opens streams and pings. All methods are safe for concurrent use. A frame is
// written by one Write call; a peer that does not take a stream's bytes stalls
// that stream only, and each stream buffers at most Window bytes.
type Conn struct {
	rw     io.ReadWriteCloser
	cfg    Config
	client bool

	wmu  sync.Mutex
	wbuf []byte

	mu      sync.Mutex
	streams map[uint32]*Stream
	nextID  uint32 // client: of the next stream; server: lowest acceptable
	err     error
	pings   map[uint64]chan struct{}
	pingSeq uint64
	ignore  int // what the peer may still send on streams that this side gave up

	watching bool // for a stall
	timer    *time.Timer
	asked    time.Time // when a ping was sent to a silent peer; zero: not asked

	serving sync.WaitGroup // streams that the peer opened

	peer     guestproto.Hello
	ready    chan struct{} // closed when peer is known
	done     chan struct{}
	lastRead atomic.Int64 // monotonic ns since epoch of the last frame
}

var epoch = time.Now()

// NewConn makes a connection and sends this side's hello. Serve must be called
// to read from it.
func NewConn(rw io.ReadWriteCloser, cfg Config) (*Conn, error) {
	c := newConn(rw, cfg)
	return c, c.greet()
}

// Connect is NewConn for a client: it reads already, on a goroutine of its own,
// while the hello is written.
func Connect(rw io.ReadWriteCloser, cfg Config) (*Conn, error) {
	c := newConn(rw, cfg)
	go func() { _ = c.Serve() }()
	return c, c.greet()
}

func newConn(rw io.ReadWriteCloser, cfg Config) *Conn {
	c := &Conn{
		rw: rw, cfg: cfg, client: cfg.Accept == nil,
		streams: map[uint32]*Stream{}, nextID: 1,
		ready: make(chan struct{}), done: make(chan struct{}),
	}
	c.lastRead.Store(int64(time.Since(epoch)))
	return c
}

func (c *Conn) greet() error {
	b := guestproto.Marshal(make([]byte, headerSize), &c.cfg.Hello)
	putHeader(b, frameHello, false, 0, len(b)-headerSize)
	_, err := c.rw.Write(b)
	return err
}

// Wait waits until every Accept has returned. It is for after Serve.
func (c *Conn) Wait() { c.serving.Wait() }

// Done is closed when the connection has ended; Err says why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection ended; nil while it lives.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Ready is closed when the peer's hello has come.
func (c *Conn) Ready() <-chan struct{} { return c.ready }

// Peer is the peer's hello; valid after Ready.
func (c *Conn) Peer() guestproto.Hello { return c.peer }

// SinceRead is how long nothing has come from the peer.
func (c *Conn) SinceRead() time.Duration {
	return time.Since(epoch) - time.Duration(c.lastRead.Load())
}

// Fail ends the connection and all its streams with err. Only the first call counts.
func (c *Conn) Fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	streams := c.streams
	c.streams = nil
	if c.timer != nil {
		c.timer.Stop()
	}
	close(c.done)
	c.mu.Unlock()
	_ = c.rw.Close()
	for _, s := range streams {
		s.fail(err)
	}
}

// Close ends the connection from this side.
func (c *Conn) Close() error {
	c.Fail(ErrClosed)
	return nil
}

// late is what may still be on its way when a stream has ended on both sides:
// the credits for a last window, given in quarters, and a reset.
const late = 4*(4+frameCost) + 8<<10

// forget drops a stream. early says that the peer may not know yet.
func (c *Conn) forget(s *Stream, early bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[s.id] != s {
		return false
	}
	delete(c.streams, s.id)
	budget := late
	if early {
		budget = 2 * Window
	}
	c.ignore = min(c.ignore+budget, 1<<30)
	return true
}

// Open opens a stream; end says that nothing but the body will be sent on it.
func (c *Conn) Open(kind guestproto.Kind, body []byte, end bool) (*Stream, error) {
	p := guestproto.Marshal(nil, &openBody{kind, body})
	if len(p) > guestproto.MaxFrame {
		return nil, guestproto.ErrTooLong
	}
	// Ids must reach the peer in rising order: the write lock covers the choice.
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	s := newStream(c, c.nextID, kind)
	s.sendEnd = end
	c.nextID += 2
	c.streams[s.id] = s
	c.watch()
	c.mu.Unlock()
	if err := c.writeLocked(frameOpen, end, s.id, p); err != nil {
		return nil, err
	}
	return s, nil
}

func (c *Conn) write(typ byte, end bool, id uint32, p []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.writeLocked(typ, end, id, p)
}

func (c *Conn) writeLocked(typ byte, end bool, id uint32, p []byte) error {
	n := headerSize + len(p)
	b := c.wbuf
	if cap(b) < n {
		if n <= keepWrite {
			b = make([]byte, keepWrite)
			c.wbuf = b
		} else {
			b = getBuf(n)
			defer putBuf(b)
		}
	}
	b = b[:n]
	putHeader(b, typ, end, id, len(p))
	copy(b[headerSize:], p)
	if _, err := c.rw.Write(b); err != nil {
		c.Fail(err)
		return c.Err()
	}
	return nil
}

// keepWrite is the write buffer that an idle connection keeps.
const keepWrite = 1 << 10
