package uplink

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// Connections that are over leave nothing in the daemon, whoever ended them.
func TestConnectionsLeaveNothing(t *testing.T) {
	w := newWorld(t)
	w.Handle(egresstest.GoodAddr+":7000", func(net.Conn) {})                                  // the server ends first
	w.Handle(egresstest.GoodAddr+":7001", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }) // the box does
	p := compile(t, policy.Spec{Mode: policy.Whitelist, IPs: []policy.Range{{CIDR: egresstest.GoodAddr}}, Limits: policy.Limits{ConnectsPerSecond: 100_000}})
	b := w.attach(p)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	round := func(n int) {
		if err := b.Do(func() error {
			for i := range n {
				c, err := net.Dial("tcp4", egresstest.GoodAddr+[]string{":7000", ":7001"}[i%2])
				if err != nil {
					return err
				}
				if i%2 == 0 {
					_, _ = c.Read(make([]byte, 1))
				}
				c.Close()
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	round(50)
	before, goroutines := heap(), runtime.NumGoroutine()
	const n = 600
	round(n)
	var grown int64
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		w.Sink.Take()
		if grown = int64(heap()) - int64(before); grown < 1<<20 && runtime.NumGoroutine() <= goroutines+2 && b.Stats().Open == 0 {
			return
		}
	}
	t.Errorf("after %d connections: %d KiB, %d goroutines more, %d open", n, grown>>10, runtime.NumGoroutine()-goroutines, b.Stats().Open)
}

// Boxes that come and go leave no goroutine, descriptor or memory.
func TestBoxesLeaveNothing(t *testing.T) {
	w := newWorld(t)
	w.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = c.Write([]byte("x")); _, _ = io.Copy(io.Discard, c) })
	p := whitelist(t, nil, egresstest.GoodAddr)
	one := func() {
		ns := w.Box()
		l, err := w.net.Attach(t.Context(), egress.Attachment{Box: egress.Identity{Box: "x"}, Netns: ns.Open, Policy: p})
		if err != nil {
			t.Fatal(err)
		}
		c, err := (&testBox{Netns: ns, Link: l, w: w}).dial("tcp4", egresstest.GoodAddr+":7000")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(false); err != nil {
			t.Fatal(err)
		}
		c.Close()
		ns.File.Close()
	}
	one()
	goroutines, fds := runtime.NumGoroutine(), countFDs(t)
	for range 30 {
		one()
	}
	if s := w.net.Stats(); s.Boxes != 0 || s.Open != 0 || s.Allowed < 31 {
		t.Errorf("%+v", s)
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines || countFDs(t) > fds; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d descriptors more", runtime.NumGoroutine()-goroutines, countFDs(t)-fds)
		}
	}
}
