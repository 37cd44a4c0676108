package guest

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pump reads a stream of an op as fast as it comes, whoever looks at it: a
// command is never held up by its output.
type pump struct {
	mu   sync.Mutex // held around a read and the keeping of what it gave
	file *os.File   // nil: at its end
}

const pumpChunk = 16 << 10

var chunks = sync.Pool{New: func() any { return new([pumpChunk]byte) }}

// read reads once: more tells that there may be more now, eof that there will be none.
func (p *pump) read(o *op, stream int, fd int) (n int, more, eof bool) {
	buf := chunks.Get().(*[pumpChunk]byte)
	defer chunks.Put(buf)
	for {
		n, err := unix.Read(fd, buf[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return 0, false, false
		case n <= 0 || err != nil: // a terminal gives EIO when nobody holds it any more
			return 0, false, true
		}
		o.wrote(stream, buf[:n])
		return n, true, false
	}
}

// run pumps until the stream's end.
func (p *pump) run(o *op, stream int) {
	p.mu.Lock()
	f := p.file
	p.mu.Unlock()
	if f == nil {
		return
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	for {
		o.holdForFollowers(stream)
		var end bool
		err := conn.Read(func(fd uintptr) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.file == nil {
				end = true
				return true
			}
			var more bool
			_, more, end = p.read(o, stream, int(fd))
			return more || end
		})
		if err != nil || end {
			p.close()
			return
		}
	}
}

// maxDrain is more than a pipe or terminal holds.
const maxDrain = 1 << 20

// drain keeps what is in the pipe now: what an ended command has written is
// there, whatever background processes still hold it open.
// At the stream's end run closes it.
func (p *pump) drain(o *op, stream int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file == nil {
		return
	}
	conn, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		for sum := 0; sum < maxDrain; {
			o.holdForFollowers(stream)
			n, more, _ := p.read(o, stream, int(fd))
			if sum += n; !more {
				return
			}
		}
	})
}

// close ends the pump. The file is closed outside the lock: Close waits for a
// read under way, which takes the lock.
func (p *pump) close() {
	p.mu.Lock()
	f := p.file
	p.file = nil
	p.mu.Unlock()
	if f != nil {
		_ = f.Close()
	}
}

// follower is an attached stream. A live one is waited for a little before
// output is dropped that it has not seen.
type follower struct {
	pos  [2]int64
	last time.Time // of its last progress
}

// followPatience is how long a follower may take for its next step.
const followPatience = 2 * time.Second

// patience is how long a command waits for a follower. One that is gone is none any more.
func (o *op) patience() time.Duration {
	if o.holdOutput {
		return 1 << 62
	}
	return followPatience
}

// holdForFollowers waits while more output would overwrite what a live follower
// has yet to get.
func (o *op) holdForFollowers(stream int) {
	for {
		o.mu.Lock()
		if len(o.followers) == 0 || o.killOnOutput {
			o.mu.Unlock()
			return
		}
		var wait time.Duration
		for f := range o.followers {
			if o.out[stream].total-f.pos[stream] > int64(o.out[stream].half)-pumpChunk {
				wait = max(wait, o.patience()-time.Since(f.last))
			}
		}
		ch := o.change()
		over := o.result != nil
		o.mu.Unlock()
		if wait <= 0 || over {
			return
		}
		t := time.NewTimer(wait)
		select {
		case <-ch:
		case <-t.C:
		}
		t.Stop()
	}
}
