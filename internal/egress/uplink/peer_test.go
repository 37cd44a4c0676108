package uplink

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
)

// peerVariable makes this program one end of a measurement: in a process of its own, as the programs of boxes and the
// servers of the world are, so that the kernel shares the processors and this process is the daemon alone.
const peerVariable = "DSEC_UPLINK_PEER"

// TestPeer is that process.
func TestPeer(t *testing.T) {
	f := strings.Fields(os.Getenv(peerVariable))
	if len(f) == 0 {
		t.Skip("runs as the other process of the benchmarks")
	}
	var err error
	switch f[0] {
	case "serve":
		err = peerServe(f[1])
	case "down", "up":
		err = peerMove(f[0], f[1])
	case "ask":
		err = peerAsk(f[1])
	case "flood":
		err = peerFlood()
	case "burn":
		for began := time.Now(); time.Since(began) < time.Hour; {
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// peer is such a process. It has one processor's worth of Go, as most programs of boxes have one thread.
type peer struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

// inNode is for a peer in the daemon's own namespace.
func inNode(fn func() error) error { return fn() }

// start starts a peer in the namespace in which do runs functions. One that is still there at the test's end is killed.
func start(t testing.TB, do func(func() error) error, role string) *peer {
	t.Helper()
	p := &peer{Cmd: exec.Command("/proc/self/exe", "-test.run=^TestPeer$")}
	p.Env = append(os.Environ(), peerVariable+"="+role, "GOMAXPROCS=1")
	p.Stderr = os.Stderr
	in, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewScanner(out)
	if err := do(p.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.end() })
	return p
}

// say gives the next line that the peer prints.
func (p *peer) say(t testing.TB) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatalf("%s ended: %v", p.Env[len(p.Env)-2], p.out.Err())
	}
	return p.out.Text()
}

// end kills the peer and gives the processor time that it used.
func (p *peer) end() time.Duration {
	if p.ProcessState == nil {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	return p.ProcessState.UserTime() + p.ProcessState.SystemTime()
}

// peerServe sends, takes or echoes bytes, as the first byte of a connection asks.
func peerServe(addr string) error {
	ln, err := net.Listen("tcp4", addr)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			how := make([]byte, 1)
			if _, err := io.ReadFull(c, how); err != nil {
				return
			}
			switch how[0] {
			case 'u':
				drain(c, time.Hour)
			case 'd':
				fill(c, time.Hour)
			default:
				_, _ = c.Write(how)
			}
		}()
	}
}

// peerMove connects, waits to be told for how long, and moves bytes. It prints MB/s.
func peerMove(how, addr string) error {
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	d, err := peerTold()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(c, how[:1]); err != nil {
		return err
	}
	if how == "up" {
		fmt.Println(fill(c, d))
	} else {
		fmt.Println(drain(c, d))
	}
	return nil
}

// peerTold waits to be told for how long.
func peerTold() (time.Duration, error) {
	fmt.Println("ready")
	var text string
	if _, err := fmt.Scan(&text); err != nil {
		return 0, err
	}
	return time.ParseDuration(text)
}

// peerAsk connects, sends a byte and takes it back, again and again for as long as it is told; it prints p50, p99 and the
// slowest in ms, and how many there were.
func peerAsk(addr string) error {
	for {
		d, err := peerTold()
		if err != nil {
			return err
		}
		var all []time.Duration
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			start := time.Now()
			c, err := net.Dial("tcp4", addr)
			if err != nil {
				return err
			}
			b := []byte("e")
			if _, err = c.Write(b); err == nil {
				_, err = io.ReadFull(c, b)
			}
			c.Close()
			if err != nil {
				return err
			}
			all = append(all, time.Since(start))
		}
		fmt.Println(percentile(all, 50), percentile(all, 99), percentile(all, 100), len(all))
	}
}

// peerFlood sends refused datagrams as fast as it can.
func peerFlood() error {
	c, err := net.Dial("udp4", egresstest.EvilAddr+":9")
	if err != nil {
		return err
	}
	for buf := make([]byte, 100); ; {
		_, _ = c.Write(buf)
	}
}

// moved is what streams did at once.
type moved struct {
	each   []float64 // MB/s
	total  float64
	daemon float64 // processor seconds a GB of this process
	all    float64 // and of all: the ends' too
}

// stream lets one peer in each namespace move bytes at once, with one server process in another.
func stream(t testing.TB, how, addr string, d time.Duration, server func(func() error) error, boxes ...func(func() error) error) (m moved) {
	t.Helper()
	s := start(t, server, "serve "+addr)
	s.say(t)
	var movers []*peer
	for _, do := range boxes {
		movers = append(movers, start(t, do, how+" "+addr))
	}
	for _, p := range movers {
		p.say(t)
	}
	used := cpu(t)
	for _, p := range movers {
		fmt.Fprintln(p.in, d)
	}
	for _, p := range movers {
		var x float64
		if _, err := fmt.Sscan(p.say(t), &x); err != nil {
			t.Fatal(err)
		}
		m.each = append(m.each, x)
		m.total += x
	}
	used = cpu(t) - used
	gb := m.total * d.Seconds() / 1000
	m.daemon = used.Seconds() / gb
	for _, p := range append(movers, s) {
		used += p.end()
	}
	m.all = used.Seconds() / gb
	return m
}
