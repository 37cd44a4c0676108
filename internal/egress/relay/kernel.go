package relay

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// chunk is what is read at once. Every hand-off between the world, this process and a box costs the same whatever it
// carries, so that chunks of 64 KiB cost a third more a byte; larger ones than this make turns so long that they are unfair.
const chunk = 512 << 10

// A connection whose other end takes nothing holds the buffer that was read for it, and a box may have thousands: until a
// connection has shown that it moves bytes, and while its box has many, its buffers are small.
const (
	smallChunk = 64 << 10
	tinyChunk  = 16 << 10
	bulk       = 4 << 20
)

var (
	chunks      = sync.Pool{New: func() any { b := make([]byte, chunk); return &b }}
	smallChunks = sync.Pool{New: func() any { b := make([]byte, smallChunk); return &b }}
	tinyChunks  = sync.Pool{New: func() any { b := make([]byte, tinyChunk); return &b }}
)

// Kernel is an End that is a connection of this machine's kernel, TCP or unix.
type Kernel struct {
	net.Conn
	raw syscall.RawConn
}

var errKind = errors.New("not a connection of the kernel")

// NewKernel makes an End of conn.
func NewKernel(conn net.Conn) (*Kernel, error) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil, errKind
	}
	raw, err := c.SyscallConn()
	return &Kernel{Conn: conn, raw: raw}, err
}

// TryWrite implements Sink.
func (k *Kernel) TryWrite(b []byte) (n int, err error) {
	failed := k.raw.Write(func(fd uintptr) bool {
		n, err = unix.SendmsgN(int(fd), b, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		return true
	})
	if failed != nil {
		return 0, failed
	}
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return max(n, 0), err
}

// WaitWrite implements Sink.
func (k *Kernel) WaitWrite() error {
	return k.raw.Write(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

// CloseWrite implements Sink.
func (k *Kernel) CloseWrite() error {
	if c, ok := k.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// Abort implements End.
func (k *Kernel) Abort() {
	if c, ok := k.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	_ = k.Close()
}

// Pump implements End.
func (k *Kernel) Pump(dst Sink, w Way) error {
	total := 0
	for {
		pool := &smallChunks
		switch {
		case w.Crowded():
			pool = &tinyChunks
		case total >= bulk:
			pool = &chunks
		}
		buf, n, err := k.read(pool)
		if n > 0 {
			err = WriteAll(dst, (*buf)[:n], w)
		}
		if buf != nil {
			pool.Put(buf)
		}
		total = min(total+n, bulk)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// read waits without a buffer, and takes one of the pool when something is there.
func (k *Kernel) read(pool *sync.Pool) (buf *[]byte, n int, err error) {
	failed := k.raw.Read(func(fd uintptr) bool {
		buf = pool.Get().(*[]byte)
		n, err = unix.Read(int(fd), *buf)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			pool.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	switch {
	case failed != nil:
		return buf, 0, failed
	case err != nil:
		return buf, 0, err
	case n == 0:
		return buf, 0, io.EOF
	}
	return buf, n, nil
}

// WriteAll writes b in turns, waiting for dst between them.
func WriteAll(dst Sink, b []byte, w Way) error {
	for len(b) > 0 {
		var n int
		var err error
		w.Turn(func() { n, err = dst.TryWrite(b) })
		if err != nil {
			return err
		}
		b = b[n:]
		if n > 0 {
			w.Moved(n)
		}
		if len(b) > 0 && n == 0 {
			if err := dst.WaitWrite(); err != nil {
				return err
			}
		}
	}
	return nil
}
