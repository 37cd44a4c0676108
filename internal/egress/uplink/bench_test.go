package uplink

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// cpu is what this process has used.
func cpu(t testing.TB) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func percentile(d []time.Duration, p int) float64 {
	slices.Sort(d)
	return float64(d[min(len(d)-1, len(d)*p/100)].Microseconds()) / 1000
}

func BenchmarkAttach(b *testing.B) {
	w := newWorld(b)
	p := whitelist(b, nil, egresstest.GoodAddr)
	var all []time.Duration
	var boxes []*egresstest.Netns
	for range min(b.N, 500) {
		boxes = append(boxes, w.Box())
	}
	b.ResetTimer()
	for i := range b.N {
		start := time.Now()
		l, err := w.net.Attach(b.Context(), egress.Attachment{Box: egress.Identity{Box: "b"}, Netns: boxes[i%len(boxes)].Open, Policy: p})
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(start))
		b.StopTimer()
		_ = l.Close(false)
		b.StartTimer()
	}
	b.ReportMetric(percentile(all, 50), "ms-p50")
	b.ReportMetric(percentile(all, 99), "ms-p99")
}

func BenchmarkIdleMemory(b *testing.B) {
	w := newWorld(b)
	p := whitelist(b, nil, egresstest.GoodAddr)
	rss := func() float64 {
		runtime.GC()
		runtime.GC()
		data, err := os.ReadFile("/proc/self/status")
		if err != nil {
			b.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "VmRSS:")
		n, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	const n = 300
	for range b.N {
		before, threads := rss(), runtime.NumGoroutine()
		for range n {
			w.attach(p)
		}
		b.ReportMetric((rss()-before)/n, "KiB/box")
		b.ReportMetric(float64(runtime.NumGoroutine()-threads)/n, "goroutines/box")
	}
}

func BenchmarkConnect(b *testing.B) {
	w := newWorld(b)
	w.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = io.Copy(c, c) })
	box := w.attach(compile(b, policy.Spec{Mode: policy.Whitelist, IPs: []policy.Range{{CIDR: egresstest.GoodAddr}}, Limits: policy.Limits{ConnectsPerSecond: 1 << 20}}))
	var all, refused []time.Duration
	if err := box.Do(func() error {
		b.ResetTimer()
		for range b.N {
			start := time.Now()
			c, err := net.Dial("tcp4", egresstest.GoodAddr+":7000")
			if err != nil {
				return err
			}
			all = append(all, time.Since(start))
			c.Close()
			start = time.Now()
			if _, err = net.Dial("tcp4", egresstest.EvilAddr+":7000"); !errors.Is(err, syscall.ECONNREFUSED) {
				return err
			}
			refused = append(refused, time.Since(start))
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(percentile(all, 50), "ms-p50")
	b.ReportMetric(percentile(all, 99), "ms-p99")
	b.ReportMetric(percentile(refused, 50), "ms-refused-p50")
	b.ReportMetric(percentile(refused, 99), "ms-refused-p99")
}

// loopback is what this machine moves over lo, for scale.
func loopback(b *testing.B) float64 {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	return drain(c, time.Second)
}

// drain reads for a while and gives MB/s.
func drain(c net.Conn, d time.Duration) float64 {
	buf := make([]byte, 256<<10)
	start := time.Now()
	n := 0
	for time.Since(start) < d {
		m, err := c.Read(buf)
		n += m
		if err != nil {
			break
		}
	}
	return float64(n) / time.Since(start).Seconds() / 1e6
}

func fill(c net.Conn, d time.Duration) float64 {
	buf := make([]byte, 256<<10)
	start := time.Now()
	n := 0
	for time.Since(start) < d {
		m, err := c.Write(buf)
		n += m
		if err != nil {
			break
		}
	}
	return float64(n) / time.Since(start).Seconds() / 1e6
}

func BenchmarkStream(b *testing.B) {
	w := newWorld(b)
	w.stream(egresstest.GoodAddr + ":7000")
	w.Handle(egresstest.GoodAddr+":7001", func(c net.Conn) { drain(c, time.Hour) })
	box := w.attach(whitelist(b, nil, egresstest.GoodAddr))
	for range b.N {
		lo := loopback(b)
		down, err := box.dial("tcp4", egresstest.GoodAddr+":7000")
		if err != nil {
			b.Fatal(err)
		}
		used := cpu(b)
		d := drain(down, 2*time.Second)
		used = cpu(b) - used
		down.Close()
		up, err := box.dial("tcp4", egresstest.GoodAddr+":7001")
		if err != nil {
			b.Fatal(err)
		}
		u := fill(up, 2*time.Second)
		up.Close()
		b.ReportMetric(lo, "MB/s-loopback")
		b.ReportMetric(d, "MB/s-down")
		b.ReportMetric(u, "MB/s-up")
		b.ReportMetric(d/lo, "down/loopback")
		b.ReportMetric(used.Seconds()/(d*2/1000), "cpu-s/GB-down") // both ends and the daemon
	}
}

func BenchmarkFiftyBoxes(b *testing.B) {
	w := newWorld(b)
	w.stream(egresstest.GoodAddr + ":7000")
	p := whitelist(b, nil, egresstest.GoodAddr)
	const n = 50
	for range b.N {
		var conns []net.Conn
		for range n {
			c, err := w.attach(p).dial("tcp4", egresstest.GoodAddr+":7000")
			if err != nil {
				b.Fatal(err)
			}
			conns = append(conns, c)
		}
		got := make([]float64, n)
		used := cpu(b)
		var wg sync.WaitGroup
		for i, c := range conns {
			wg.Go(func() { got[i] = drain(c, 4*time.Second); c.Close() })
		}
		wg.Wait()
		used = cpu(b) - used
		sum := 0.0
		for _, x := range got {
			sum += x
		}
		b.ReportMetric(sum, "MB/s-total")
		b.ReportMetric(used.Seconds()/(sum*4/1000), "cpu-s/GB")
		b.ReportMetric(slices.Min(got)/(sum/n), "slowest/mean")
		b.ReportMetric(slices.Max(got)/(sum/n), "fastest/mean")
	}
}

func BenchmarkThousandConnections(b *testing.B) {
	w := newWorld(b)
	w.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = io.Copy(c, c) })
	box := w.attach(whitelist(b, nil, egresstest.GoodAddr))
	for range b.N {
		const n = 1000
		var wg sync.WaitGroup
		var failed atomic.Int64
		took := make([]time.Duration, n)
		begin := time.Now()
		for i := range n {
			wg.Go(func() {
				start := time.Now()
				c, err := box.dial("tcp4", egresstest.GoodAddr+":7000")
				if err == nil {
					defer c.Close()
					_ = c.SetDeadline(time.Now().Add(20 * time.Second))
					if _, err = c.Write([]byte("x")); err == nil {
						_, err = io.ReadFull(c, make([]byte, 1))
					}
				}
				if err != nil {
					failed.Add(1)
				}
				took[i] = time.Since(start)
			})
		}
		wg.Wait()
		b.ReportMetric(float64(time.Since(begin).Milliseconds()), "ms-all")
		b.ReportMetric(percentile(took, 100), "ms-slowest")
		b.ReportMetric(float64(failed.Load()), "failed")
		b.ReportMetric(box.retransmitted(b), "retransmitted")
		b.StopTimer()
		time.Sleep(2 * time.Second) // the limit of connects fills up again
		b.StartTimer()
	}
}

// retransmitted counts the segments that the box's kernel sent again: each is a stall.
func (b *testBox) retransmitted(t testing.TB) (n float64) {
	if err := b.Do(func() error {
		data, err := os.ReadFile("/proc/thread-self/net/snmp")
		var keys []string
		for l := range strings.Lines(string(data)) {
			f := strings.Fields(l)
			switch {
			case f[0] != "Tcp:":
			case keys == nil:
				keys = f
			default:
				n, err = strconv.ParseFloat(f[slices.Index(keys, "RetransSegs")], 64)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// BenchmarkReattach measures how fast the next daemon takes over many boxes.
func BenchmarkReattach(b *testing.B) {
	w := newWorld(b)
	w.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = io.Copy(c, c) })
	p := whitelist(b, nil, egresstest.GoodAddr)
	const n = 200
	for range b.N {
		var boxes []*testBox
		for range n {
			x := w.attach(p)
			c, err := x.dial("tcp4", egresstest.GoodAddr+":7000")
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { c.Close() })
			boxes = append(boxes, x)
		}
		_ = w.net.Close()
		w.net = New(w.Config())
		start := time.Now()
		var wg sync.WaitGroup
		var failed atomic.Int64
		for _, x := range boxes {
			wg.Go(func() {
				if _, err := w.net.Attach(b.Context(), egress.Attachment{Box: egress.Identity{Box: "b"}, Netns: x.Open, Policy: p, Resume: true}); err != nil {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms-all")
		for _, x := range boxes {
			c, err := x.dial("tcp4", egresstest.GoodAddr+":7000")
			if err != nil {
				failed.Add(1)
				continue
			}
			c.Close()
		}
		b.ReportMetric(float64(failed.Load()), "failed")
	}
	_ = w.net.Close()
}

// BenchmarkFlood measures what a box that floods refused datagrams costs the daemon and its neighbours.
func BenchmarkFlood(b *testing.B) {
	w := newWorld(b)
	w.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = io.Copy(c, c) })
	p := whitelist(b, nil, egresstest.GoodAddr)
	bad, quiet := w.attach(p), w.attach(p)
	latency := func(d time.Duration) float64 {
		var all []time.Duration
		for start := time.Now(); time.Since(start) < d; time.Sleep(2 * time.Millisecond) {
			s := time.Now()
			c, err := quiet.dial("tcp4", egresstest.GoodAddr+":7000")
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, time.Since(s))
			c.Close()
		}
		return percentile(all, 50)
	}
	for range b.N {
		calm := latency(time.Second)
		idle := cpu(b)
		latency(time.Second)
		idle = cpu(b) - idle
		// The flood is another process's work: it is not to be counted as the daemon's.
		cmd := floodCommand(b, bad)
		before := bad.Stats()
		used := cpu(b)
		start := time.Now()
		stormy := latency(2 * time.Second)
		took := time.Since(start)
		used = cpu(b) - used
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		after := bad.Stats()
		b.ReportMetric((used.Seconds()-2*idle.Seconds())/took.Seconds(), "cores")
		b.ReportMetric(calm, "ms-calm-p50")
		b.ReportMetric(stormy, "ms-flood-p50")
		b.ReportMetric(float64(after.Refused-before.Refused)/took.Seconds(), "refused/s")
		b.ReportMetric(float64(after.Records-before.Records)/took.Seconds(), "records/s")
	}
}
