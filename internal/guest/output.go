package guest

import "sync"

// budget is the memory that all kept output of a box may take together.
type budget struct {
	mu   sync.Mutex
	left int64
	// evict drops finished ops' results until some memory is free or none is left.
	evict func() bool
}

func (b *budget) reserve(n int) bool {
	for {
		b.mu.Lock()
		ok := b.left >= int64(n)
		if ok {
			b.left -= int64(n)
		}
		b.mu.Unlock()
		if ok || b.evict == nil || !b.evict() {
			return ok
		}
	}
}

func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return outputBudget - b.left
}

func (b *budget) release(n int) {
	b.mu.Lock()
	b.left += int64(n)
	b.mu.Unlock()
}

// output keeps the head and the tail of a stream. Offsets count from the
// stream's start. It is not safe for concurrent use: the op's lock guards it.
type output struct {
	budget   *budget
	half     int // bytes of head, and of tail, at most
	head     []byte
	headDone bool
	tail     []byte // a ring once it has reached its full size
	at       int    // where the ring's oldest byte is, when it is full
	full     bool
	total    int64
	reserved int
	freed    bool
}

// minTail is kept whatever the budget says.
const minTail = 4 << 10

func (o *output) write(p []byte) {
	o.total += int64(len(p))
	if o.freed {
		return
	}
	if !o.headDone {
		n := min(len(p), o.half-len(o.head))
		if need := len(o.head) + n; need > cap(o.head) && !o.growHead(need) {
			n = min(n, cap(o.head)-len(o.head))
			o.headDone = true
		}
		o.head = append(o.head, p[:n]...)
		p = p[n:]
		if len(o.head) >= o.half {
			o.headDone = true
		}
	}
	for len(p) > 0 {
		if !o.full && len(o.tail) == cap(o.tail) && !o.growTail(len(p)) {
			o.full = true
		}
		if !o.full {
			n := min(len(p), cap(o.tail)-len(o.tail))
			o.tail = append(o.tail, p[:n]...)
			p = p[n:]
			continue
		}
		if len(p) > len(o.tail) {
			p = p[len(p)-len(o.tail):]
		}
		n := copy(o.tail[o.at:], p)
		o.at = (o.at + n) % len(o.tail)
		p = p[n:]
	}
}

func (o *output) growHead(need int) bool {
	size := min(o.half, max(need, 2*cap(o.head)))
	if !o.take(size-cap(o.head), size <= 512) {
		return false
	}
	o.head = append(make([]byte, 0, size), o.head...)
	return true
}

func (o *output) growTail(need int) bool {
	size := min(o.half, max(minTail, 2*cap(o.tail), need))
	if size <= cap(o.tail) {
		return false
	}
	if !o.take(size-cap(o.tail), false) {
		if cap(o.tail) > 0 {
			return false
		}
		size = min(o.half, minTail) // outside the budget: there are few of these
	}
	o.tail = append(make([]byte, 0, size), o.tail...)
	return true
}

func (o *output) take(n int, always bool) bool {
	if !o.budget.reserve(n) {
		return always
	}
	o.reserved += n
	return true
}

// free gives the memory back; the totals stay.
func (o *output) free() {
	o.budget.release(o.reserved)
	o.reserved = 0
	o.head, o.tail, o.freed = nil, nil, true
	o.full, o.at = false, 0
}

// tailStart is the offset of the oldest byte of the tail.
func (o *output) tailStart() int64 { return o.total - int64(len(o.tail)) }

// read copies what is kept from offset on into p. gap is the number of bytes
// that are lost between offset and what was read.
func (o *output) read(offset int64, p []byte) (n int, gap int64) {
	if offset < int64(len(o.head)) {
		return copy(p, o.head[offset:]), 0
	}
	start := o.tailStart()
	if offset < start {
		gap, offset = start-offset, start
	}
	skip := int(offset - start)
	if !o.full {
		return copy(p, o.tail[skip:]), gap
	}
	first := o.at + skip
	if first >= len(o.tail) {
		return copy(p, o.tail[first-len(o.tail):o.at]), gap
	}
	n = copy(p, o.tail[first:])
	if skip < len(o.tail) && n < len(p) && first >= o.at {
		n += copy(p[n:], o.tail[:o.at])
	}
	return n, gap
}

// kept is the number of bytes that are still there.
func (o *output) kept() int64 { return int64(len(o.head) + len(o.tail)) }

// parts are copies of head and tail, contiguous output in the head alone.
func (o *output) parts() (head, tail []byte) {
	tail = make([]byte, len(o.tail))
	if o.full && len(o.tail) > 0 {
		n := copy(tail, o.tail[o.at:])
		copy(tail[n:], o.tail[:o.at])
	} else {
		copy(tail, o.tail)
	}
	head = o.head[:len(o.head):len(o.head)]
	if o.kept() == o.total {
		return append(head, tail...), nil
	}
	return append([]byte(nil), head...), tail
}
