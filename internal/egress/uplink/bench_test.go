package uplink

import (
	"errors"
	"fmt"
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
	const n = 1000
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

// BenchmarkStream moves bytes through one box, and over loopback between the same two programs for scale.
func BenchmarkStream(b *testing.B) {
	w := newWorld(b)
	box := w.attach(whitelist(b, nil, egresstest.GoodAddr))
	const d = 2 * time.Second
	for range b.N {
		lo := stream(b, "down", "127.0.0.1:7000", d, inNode, inNode)
		down := stream(b, "down", egresstest.GoodAddr+":7000", d, w.World, box.Do)
		up := stream(b, "up", egresstest.GoodAddr+":7000", d, w.World, box.Do)
		b.ReportMetric(lo.total, "MB/s-loopback")
		b.ReportMetric(lo.all, "cpu-s/GB-loopback")
		b.ReportMetric(down.total, "MB/s-down")
		b.ReportMetric(up.total, "MB/s-up")
		b.ReportMetric(down.total/lo.total, "down/loopback")
		b.ReportMetric(down.daemon, "cpu-s/GB-daemon")
		b.ReportMetric(down.all, "cpu-s/GB-all")
	}
}

// BenchmarkFiftyBoxes does what BenchmarkStream does, in the same way, in fifty boxes at once.
func BenchmarkFiftyBoxes(b *testing.B) {
	w := newWorld(b)
	p := whitelist(b, nil, egresstest.GoodAddr)
	const n = 50
	for range b.N {
		var boxes []func(func() error) error
		for range n {
			boxes = append(boxes, w.attach(p).Do)
		}
		m := stream(b, "down", egresstest.GoodAddr+":7000", 4*time.Second, w.World, boxes...)
		b.ReportMetric(m.total, "MB/s-total")
		b.ReportMetric(m.daemon, "cpu-s/GB-daemon")
		b.ReportMetric(m.all, "cpu-s/GB-all")
		b.ReportMetric(slices.Min(m.each)/(m.total/n), "slowest/mean")
		b.ReportMetric(slices.Max(m.each)/(m.total/n), "fastest/mean")
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

// BenchmarkFlood measures what a box that floods refused datagrams costs the daemon and a neighbour. The flood takes a
// processor for itself, as any busy box does: what a loop that sends nothing costs the neighbour is measured in the same
// box, in turns with it.
func BenchmarkFlood(b *testing.B) {
	w := newWorld(b)
	p := whitelist(b, nil, egresstest.GoodAddr)
	bad, quiet := w.attach(p), w.attach(p)
	start(b, w.World, "serve "+egresstest.GoodAddr+":7000").say(b)
	ask := start(b, quiet.Do, "ask "+egresstest.GoodAddr+":7000")
	const d = time.Second
	measure := func(beside string) (x latency) {
		if beside != "" {
			other := start(b, bad.Do, beside)
			time.Sleep(300 * time.Millisecond)
			defer other.end()
		}
		ask.say(b)
		used, began, refused, records := cpu(b), time.Now(), bad.Stats().Refused, bad.Stats().Records
		fmt.Fprintln(ask.in, d)
		if _, err := fmt.Sscan(ask.say(b), &x.p50, &x.p99, &x.worst, &x.n); err != nil {
			b.Fatal(err)
		}
		took := time.Since(began).Seconds()
		x.cores = (cpu(b) - used).Seconds() / took
		x.refused, x.records = float64(bad.Stats().Refused-refused)/took, float64(bad.Stats().Records-records)/took
		return x
	}
	for range b.N {
		var calm, busy, flood []latency
		other := start(b, bad.Do, "flood")
		time.Sleep(300 * time.Millisecond)
		used := cpu(b)
		time.Sleep(d)
		b.ReportMetric((cpu(b)-used).Seconds()/d.Seconds(), "cores-flood-alone")
		other.end()
		for range 3 {
			calm, busy, flood = append(calm, measure("")), append(busy, measure("burn")), append(flood, measure("flood"))
		}
		for name, l := range map[string][]latency{"calm": calm, "busy": busy, "flood": flood} {
			b.ReportMetric(middle(l, func(x latency) float64 { return x.p50 }), "ms-"+name+"-p50")
			b.ReportMetric(middle(l, func(x latency) float64 { return x.p99 }), "ms-"+name+"-p99")
			b.ReportMetric(middle(l, func(x latency) float64 { return x.cores }), "cores-"+name)
			b.ReportMetric(middle(l, func(x latency) float64 { return x.n / d.Seconds() }), "asked/s-"+name)
		}
		b.ReportMetric(middle(flood, func(x latency) float64 { return x.refused }), "refused/s")
		b.ReportMetric(middle(flood, func(x latency) float64 { return x.records }), "records/s")
	}
}

// latency is what a neighbour sees in a while, and the daemon does.
type latency struct{ p50, p99, worst, n, cores, refused, records float64 }

// middle gives the median.
func middle(l []latency, of func(latency) float64) float64 {
	var v []float64
	for _, x := range l {
		v = append(v, of(x))
	}
	slices.Sort(v)
	return v[len(v)/2]
}
