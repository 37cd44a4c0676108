package cli

import (
	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// capture keeps the begin and the end of a stream, as the API does: what
// follows a command live is not told its output again at its end.
type capture struct {
	half       int
	head, tail []byte
	total      int64
}

func newCapture(limit int64) *capture {
	if limit <= 0 {
		limit = 1 << 20
	}
	return &capture{half: int(max(limit/2, 1))}
}

func (c *capture) Write(b []byte) (int, error) {
	n := len(b)
	c.total += int64(n)
	if room := c.half - len(c.head); room > 0 {
		k := min(room, len(b))
		c.head, b = append(c.head, b[:k]...), b[k:]
	}
	c.tail = append(c.tail, b...)
	if len(c.tail) > 2*c.half { // cut seldom, so that each byte is moved about once
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-c.half:]...)
	}
	return n, nil
}

func (c *capture) output() *dsecv1.Output {
	tail := c.tail[max(0, len(c.tail)-c.half):]
	return &dsecv1.Output{Head: c.head, Tail: tail, Total: c.total, Dropped: c.total - int64(len(c.head)+len(tail))}
}
