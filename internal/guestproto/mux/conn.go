package mux

import (
	"bufio"
	"encoding/binary"
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
	// Prefix is written before the hello, in the same write.
	Prefix []byte
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
	n := len(c.cfg.Prefix)
	b := append(c.cfg.Prefix[:n:n], make([]byte, headerSize)...)
	b = guestproto.Marshal(b, &c.cfg.Hello)
	putHeader(b[n:], frameHello, false, 0, len(b)-n-headerSize)
	_, err := c.rw.Write(b)
	return err
}

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

// Streams is the number of open streams.
func (c *Conn) Streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams)
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

// Serve reads frames until the connection ends, and gives the reason.
func (c *Conn) Serve() error {
	r := bufio.NewReaderSize(c.rw, 4096)
	for {
		h, err := readHeader(r)
		if err == nil {
			err = c.handle(h, r)
		}
		if err == io.EOF {
			err = ErrLost // streams give io.EOF for their own end only
		}
		if err != nil {
			c.Fail(err)
			return c.Err()
		}
	}
}

func (c *Conn) handle(h header, r *bufio.Reader) error {
	c.lastRead.Store(int64(time.Since(epoch)))
	greeted := false
	select {
	case <-c.ready:
		greeted = true
	default:
	}
	if greeted == (h.typ == frameHello) {
		return broken("hello is not the first frame")
	}
	switch h.typ {
	case frameMsg, frameData:
		return c.handlePayload(h, r)
	}
	p := make([]byte, h.size)
	if _, err := io.ReadFull(r, p); err != nil {
		return err
	}
	switch h.typ {
	case frameHello:
		if err := guestproto.Unmarshal(p, &c.peer); err != nil {
			return broken("hello: ", err)
		}
		close(c.ready)
		return nil
	case frameOpen:
		return c.handleOpen(h, p)
	case frameCredit:
		return c.handleCredit(h, p)
	case frameReset:
		return c.handleReset(h, p)
	case framePing:
		if c.client || h.size != 8 {
			return broken("unexpected ping")
		}
		return c.write(framePong, false, 0, p)
	case framePong:
		return c.handlePong(p)
	}
	return broken("frame type ", h.typ)
}

func (c *Conn) handleOpen(h header, p []byte) error {
	if c.client || h.id&1 == 0 {
		return broken("unexpected open of stream ", h.id)
	}
	var o openBody
	if err := guestproto.Unmarshal(p, &o); err != nil {
		return broken("open: ", err)
	}
	c.mu.Lock()
	if h.id < c.nextID {
		c.mu.Unlock()
		return broken("stream ", h.id, " opened again")
	}
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.nextID = h.id + 2
	full := len(c.streams) >= MaxStreams
	s := newStream(c, h.id, o.kind)
	s.recvEnd = h.end
	if !full {
		c.streams[h.id] = s
	} else {
		c.ignore += 2 * Window
	}
	c.mu.Unlock()
	if full {
		e := &guestproto.WireError{Class: "limit", Reason: "rate_limited", Object: "guest", Message: "too many streams are open", Remedy: "wait for some to end"}
		return c.write(frameReset, false, h.id, guestproto.Marshal(nil, e))
	}
	go c.cfg.Accept(s, o.body)
	return nil
}

// find gives the stream of a frame; nil without error when this side has given it up.
func (c *Conn) find(h header) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[h.id]; s != nil {
		return s, nil
	}
	if c.err != nil {
		return nil, c.err
	}
	if h.id&1 == 0 || h.id >= c.nextID {
		return nil, broken("frame type ", h.typ, " on stream ", h.id, ", which was never opened")
	}
	c.ignore -= h.size + frameCost
	if c.ignore < 0 {
		return nil, broken("frames on closed streams")
	}
	return nil, nil
}

func (c *Conn) handlePayload(h header, r *bufio.Reader) error {
	s, err := c.find(h)
	if err != nil {
		return err
	}
	if s == nil {
		_, err := r.Discard(h.size)
		return err
	}
	p := getBuf(h.size)
	if _, err := io.ReadFull(r, p); err != nil {
		return err
	}
	return s.push(Frame{Data: h.typ == frameData, Payload: p}, h.end)
}

func (c *Conn) handleCredit(h header, p []byte) error {
	s, err := c.find(h)
	if err != nil || s == nil {
		return err
	}
	if len(p) != 4 {
		return broken("credit of ", len(p), " bytes")
	}
	return s.credit(binary.LittleEndian.Uint32(p))
}

func (c *Conn) handleReset(h header, p []byte) error {
	s, err := c.find(h)
	if err != nil || s == nil {
		return err
	}
	e := &guestproto.WireError{}
	if err := guestproto.Unmarshal(p, e); err != nil {
		return broken("reset: ", err)
	}
	if e.Reason == "" {
		e.Class, e.Reason, e.Message, e.Remedy = "user", "canceled", "the stream was reset", "send the request again"
	}
	c.forget(s, false)
	s.fail(e)
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
