package mux

import (
	"encoding/binary"
	"errors"
)

// maxPings bounds the pings in flight.
const maxPings = 64

var errTooManyPings = errors.New("too many pings in flight")

// Ping sends a ping; the channel is closed when its answer has come. It never
// waits for the answer, but for the peer to take the frame.
func (c *Conn) Ping() (<-chan struct{}, error) {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	if len(c.pings) >= maxPings {
		c.mu.Unlock()
		return nil, errTooManyPings
	}
	if c.pings == nil {
		c.pings = map[uint64]chan struct{}{}
	}
	c.pingSeq++
	seq, ch := c.pingSeq, make(chan struct{})
	c.pings[seq] = ch
	c.mu.Unlock()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seq)
	return ch, c.write(framePing, false, 0, b[:])
}

func (c *Conn) handlePong(p []byte) error {
	if len(p) != 8 {
		return broken("pong of ", len(p), " bytes")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seq := binary.LittleEndian.Uint64(p)
	ch := c.pings[seq]
	if ch == nil {
		return broken("pong that was not asked for")
	}
	delete(c.pings, seq)
	close(ch)
	return nil
}
