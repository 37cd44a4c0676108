package mux

import (
	"errors"
	"time"
)

// ErrStalled ends a connection whose peer lives but does not answer.
var ErrStalled = errors.New("guest does not answer")

// Clocks of the detection of a stalled peer. A loaded machine is slow, so they
// are long; they run only while a stream is open.
const (
	stallTick  = 15 * time.Second
	StallAfter = 20 * time.Second
)

// watch starts the clock with the first open stream. The connection's lock is held.
func (c *Conn) watch() {
	if c.watching || !c.client {
		return
	}
	c.watching, c.asked = true, time.Time{}
	if c.timer == nil {
		c.timer = time.AfterFunc(stallTick, c.look)
	} else {
		c.timer.Reset(stallTick)
	}
}

// look asks a silent peer for a sign of life, and gives it up without one.
func (c *Conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) == 0 || c.err != nil {
		c.watching = false
		return
	}
	silent := c.SinceRead()
	if !c.asked.IsZero() && silent <= time.Since(c.asked) { // it has answered
		c.asked = time.Time{}
	}
	switch {
	case silent < stallTick:
	case c.asked.IsZero():
		c.asked = time.Now()
		go func() { _, _ = c.Ping() }() // a write that the peer does not take is a stall, too
	case time.Since(c.asked) >= StallAfter:
		go c.Fail(ErrStalled)
		c.watching = false
		return
	}
	c.timer.Reset(stallTick)
}
