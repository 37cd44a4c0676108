package egress

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

const small = "mem_limit: 16Mi\nnetwork: {egress_policy: whitelist, allowed_ips: [\"" + egresstest.GoodAddr + "/32\"]}\n"

// writer writes to a connection until that fails; of bash alone, so that hundreds are cheap.
const writer = `trap "" PIPE; exec 3<>/dev/tcp/` + egresstest.GoodAddr + `/7000 || exit 9
while printf x >&3; do read -t 0.5 -u 3; [ $? -gt 128 ] || exit 3; done 2>/dev/null; exit 4`

const connect = `exec 3<>/dev/tcp/` + egresstest.GoodAddr + `/7001 && read -r x <&3 && test "$x" = hello`

// After a kill -9 of the daemon the next one takes over all boxes; what was connected fails instead
// of hanging, all boxes work, and stopping them leaves nothing.
func TestKillWithManyBoxes(t *testing.T) {
	r := start(t)
	var sunk atomic.Int64
	r.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) {
		sunk.Add(1)
		_, _ = io.Copy(io.Discard, c)
	})
	r.Handle(egresstest.GoodAddr+":7001", func(c net.Conn) { _, _ = io.WriteString(c, "hello\n") })
	n := full(200, 20)
	before := r.held()
	boxes := r.boxes(n, small)
	ops := make([]string, n)
	var wg sync.WaitGroup
	turn := make(chan struct{}, 4)
	each := func(fn func(i int, s *dsec.Session)) {
		for i, s := range boxes {
			wg.Go(func() {
				turn <- struct{}{}
				defer func() { <-turn }()
				fn(i, s)
			})
		}
		wg.Wait()
	}
	each(func(i int, s *dsec.Session) { ops[i] = r.background(s, "bash", "-c", writer) })
	r.eventually(time.Minute, "all writers are connected", func() bool { return sunk.Load() == int64(n) })
	if h := r.held(); h.taps != n {
		t.Errorf("the daemon holds %d TAPs of %d boxes", h.taps, n)
	}

	r.Kill()
	began := time.Now()
	if err := r.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready := time.Since(began)
	r.eventually(10*time.Second, "all boxes have their way out again", func() bool { return r.metric("dsec_egress_boxes") == float64(n) })
	attached := time.Since(began)
	var hung, kept atomic.Int64
	each(func(i int, s *dsec.Session) {
		for {
			o, err := s.Op(t.Context(), ops[i], false)
			if err != nil {
				t.Error(err)
				return
			}
			if !o.GetRunning() {
				kept.Add(1)
				return
			}
			if time.Since(began) > attached+10*time.Second {
				hung.Add(1)
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	told := time.Since(began) - attached
	var works atomic.Int64
	each(func(_ int, s *dsec.Session) {
		res, err := s.Run(t.Context(), dsec.Command{Argv: []string{"bash", "-c", connect}})
		if err == nil && res.GetExitCode() == 0 {
			works.Add(1)
		} else {
			t.Errorf("%s after the restart: %v %v", s.ID(), err, res)
		}
	})
	if hung.Load() > 0 || kept.Load() != int64(n) || works.Load() != int64(n) {
		t.Errorf("of %d boxes: %d writers hang, %d ended, %d boxes work", n, hung.Load(), kept.Load(), works.Load())
	}
	stopping := time.Now()
	if _, err := r.c.Stop(t.Context(), &dsec.Selector{All: true}, "the test"); err != nil {
		t.Fatal(err)
	}
	stopped := time.Since(stopping)
	r.eventually(10*time.Second, "nothing of the boxes is held", func() bool {
		h := r.held()
		return h.taps == 0 && h.netns <= before.netns && r.metric("dsec_egress_boxes") == 0
	})
	figure(t, "kill -9 with %d boxes: ready after %d ms, all re-attached after %d ms, all writers told within %d ms more, %d of %d boxes work, stop of all %d ms, 0 TAPs and namespaces held",
		n, ready.Milliseconds(), attached.Milliseconds(), told.Milliseconds(), works.Load(), n, stopped.Milliseconds())
}

const echo = `import socket,sys,time
s = socket.create_connection(("` + egresstest.GoodAddr + `", 7000), 5)
s.settimeout(20)
print("open", flush=True)
for i in range(%d):
    s.sendall(b"x")
    if s.recv(1) != b"x": sys.exit("ended")
    time.sleep(0.1)
print("all echoed")`

// A connection that is open when a session is suspended goes on after the resume.
func TestSuspendWithOpenConnection(t *testing.T) {
	r := start(t)
	var echoed atomic.Int64
	r.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) {
		for buf := make([]byte, 16); ; {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			_, _ = c.Write(buf[:n])
			echoed.Add(int64(n))
		}
	})
	s := r.session(`{egress_policy: whitelist, allowed_ips: ["` + egresstest.GoodAddr + `/32"]}`)
	op := r.background(s, "python3", "-c", strings.Replace(echo, "%d", "20", 1))
	r.eventually(20*time.Second, "the box talks", func() bool { return echoed.Load() > 2 })
	if err := s.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	at := echoed.Load()
	time.Sleep(time.Second)
	if n := echoed.Load(); n != at {
		t.Errorf("a suspended box sent %d bytes", n-at)
	}
	if err := s.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := r.ended(s, op); !strings.Contains(out, "all echoed") {
		t.Errorf("after the resume: %s", out)
	}
}

// A stop ends what is open, at both ends, and does not wait for it.
func TestStopWithOpenConnections(t *testing.T) {
	r := start(t)
	var open atomic.Int64
	zeros := make([]byte, 64<<10)
	r.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) {
		open.Add(1)
		defer open.Add(-1)
		for {
			if _, err := c.Write(zeros); err != nil {
				return
			}
		}
	})
	s := r.session(`{egress_policy: whitelist, limits: {bandwidth: 1Mi}, allowed_ips: ["` + egresstest.GoodAddr + `/32"]}`)
	r.background(s, "python3", "-c", `import socket,threading
def read():
    s = socket.create_connection(("`+egresstest.GoodAddr+`", 7000))
    while s.recv(65536): pass
for _ in range(20): threading.Thread(target=read).start()`)
	r.eventually(20*time.Second, "20 streams are open", func() bool { return open.Load() == 20 })
	began := time.Now()
	if err := s.Stop(t.Context(), "the test"); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	r.eventually(5*time.Second, "the servers have seen the end", func() bool { return open.Load() == 0 })
	figure(t, "stop with 20 open streams: %d ms", took.Milliseconds())
	if took > 5*time.Second {
		t.Errorf("the stop took %v", took)
	}
	if n := r.metric("dsec_egress_connections"); n != 0 {
		t.Errorf("%v connections are still open", n)
	}
}

// Boxes that come and go leave nothing in the daemon.
func TestChurn(t *testing.T) {
	r := start(t)
	r.Handle(egresstest.GoodAddr+":7001", func(c net.Conn) { _, _ = io.WriteString(c, "hello\n") })
	once := func(n int) {
		for range n {
			s, err := r.c.Create(t.Context(), dsec.CreateOptions{SpecYAML: small})
			if err != nil {
				t.Fatal(err)
			}
			if res, err := s.Run(t.Context(), dsec.Command{Argv: []string{"bash", "-c", connect}}); err != nil || res.GetExitCode() != 0 {
				t.Fatalf("%v %v", err, res)
			}
			if err := s.Stop(t.Context(), "the test"); err != nil {
				t.Fatal(err)
			}
		}
	}
	once(10)
	time.Sleep(time.Second)
	fds, goroutines := r.held(), r.metric("go_goroutines")
	n := full(100, 20)
	began := time.Now()
	once(n)
	took := time.Since(began)
	r.eventually(20*time.Second, "the daemon is as it was before the churn", func() bool {
		h, g := r.held(), r.metric("go_goroutines")
		return h.taps == 0 && h.netns <= fds.netns && h.fds <= fds.fds+4 && g <= goroutines+8
	})
	figure(t, "churn of %d: %.1f ms each for create, connect, stop; descriptors %d before, %d after; goroutines %.0f before, %.0f after",
		n, float64(took.Milliseconds())/float64(n), fds.fds, r.held().fds, goroutines, r.metric("go_goroutines"))
}
