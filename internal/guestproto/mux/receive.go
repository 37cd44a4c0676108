package mux

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

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
	c.serving.Go(func() { c.cfg.Accept(s, o.body) })
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
