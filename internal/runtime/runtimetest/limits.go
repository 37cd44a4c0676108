package runtimetest

import (
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// testColdConfig and testClaim: what a session asks for is the same, whichever way its box came.
func testColdConfig(_ *testing.T, s *suite) {
	b := s.create(func(c *runtime.Config) { c.Claim = asked(c.Claim) })
	s.asAsked(b)
	s.destroy(b)
}

func testClaim(t *testing.T, s *suite) {
	b := s.create(func(c *runtime.Config) {
		c.Pooled = true
		c.Claim = runtime.Claim{Limits: runtime.Limits{Memory: 8 << 20, Pids: 32}}
	})
	if err := b.Claim(s.ctx(), asked(s.config().Claim)); err != nil {
		t.Fatalf("claim: %v", err)
	}
	if err := b.Claim(s.ctx(), asked(s.config().Claim)); err == nil {
		t.Error("a box was claimed twice")
	}
	s.asAsked(b)
	rec := b.Record()
	s.restart()
	b, err := s.rt.Open(s.ctx(), rec)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	s.asAsked(b)
	s.destroy(b)
	s.nothingLeft()
}

func asked(c runtime.Claim) runtime.Claim {
	c.Hostname = "claimed"
	c.Env = []string{"COLOUR=red", "SPACED=a b\tc", "EMPTY="}
	c.WritableDirs = []string{"/workspace", "/data/deep"}
	c.Limits.Memory = 48 << 20
	return c
}

func (s *suite) asAsked(b runtime.Box) {
	s.t.Helper()
	g := s.guest(b)
	if got := s.out(g, `echo "$COLOUR,$SPACED,$EMPTY."`); got != "red,a b\tc,.\n" {
		s.t.Errorf("environment: %q", got)
	}
	u, err := b.Usage(s.ctx())
	if err != nil || u.MemoryLimit != 48<<20 {
		s.t.Errorf("usage %+v, %v", u, err)
	}
	if s.has(runtime.FeatureUsers) {
		if got := s.out(g, "id -u"); got != "1000\n" {
			s.t.Errorf("the default user has id %q", got)
		}
		root := func(r *guestproto.ExecRequest) { r.User = "root" }
		if got := s.out(g, "id -u", root); got != "0\n" {
			s.t.Errorf("root has id %q", got)
		}
	}
	if s.has(runtime.FeatureRoot) {
		if got := s.out(g, "uname -n"); got != "claimed\n" {
			s.t.Errorf("hostname %q", got)
		}
	}
	if s.has(runtime.FeatureDirs) {
		s.out(g, "echo 1 > /workspace/x && echo 2 > /data/deep/x && echo 3 > /tmp/x && cat /workspace/x /data/deep/x /tmp/x")
	}
}

func testRoot(t *testing.T, s *suite) {
	s.need(runtime.FeatureRoot, runtime.FeatureUsers)
	root := func(r *guestproto.ExecRequest) { r.User = "root" }
	for _, writable := range []bool{false, true} {
		b := s.create(func(c *runtime.Config) { c.RootWritable = writable })
		g := s.guest(b)
		res := s.sh(g, "echo x > /etc/dsec-test && rm -f /bin/ls", root)
		if ok := res.ExitCode == 0; ok != writable {
			t.Errorf("writable %v, writing ended with %d: %s", writable, res.ExitCode, res.Stderr.Head)
		}
		s.destroy(b)
	}
	// What one box did to its root is not seen by the next one.
	b := s.create(func(c *runtime.Config) { c.RootWritable = true })
	if got := s.out(s.guest(b), "test ! -e /etc/dsec-test && test -e /bin/ls && echo clean"); got != "clean\n" {
		t.Errorf("got %q", got)
	}
	s.destroy(b)
}

func testSizes(t *testing.T, s *suite) {
	s.need(runtime.FeatureDirs)
	b := s.create(func(c *runtime.Config) { c.Limits.Memory = 128 << 20 })
	g := s.guest(b)
	for _, dir := range []string{"/workspace", "/tmp", "/dev/shm"} {
		res := s.sh(g, "dd if=/dev/zero of="+dir+"/big bs=1M count=64 2>&1; s=$?; rm -f "+dir+"/big; exit $s")
		if res.ExitCode == 0 || !strings.Contains(string(res.Stdout.Head), "No space") {
			t.Errorf("64 MiB into %s: exit %d, %s", dir, res.ExitCode, res.Stdout.Head)
		}
	}
	s.out(g, "dd if=/dev/zero of=/workspace/small bs=1M count=4")
	s.destroy(b)
}

func testFreeze(t *testing.T, s *suite) {
	s.need(runtime.FeatureFreeze, runtime.FeatureUsage)
	b := s.create()
	g := s.guest(b)
	s.background(g, "while :; do :; done")
	cpu := func() time.Duration {
		t.Helper()
		u, err := b.Usage(s.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return u.CPU
	}
	runs := func() bool {
		before := cpu()
		time.Sleep(100 * time.Millisecond)
		return cpu()-before > time.Millisecond
	}
	eventually(t, "it runs", runs)
	for range 2 {
		if err := b.Freeze(s.ctx()); err != nil {
			t.Fatalf("freeze: %v", err)
		}
	}
	if runs() {
		t.Error("a frozen box runs")
	}
	if err := g.Ping(s.ctx()); err != nil {
		t.Errorf("the guest of a frozen box: %v", err)
	}
	rec := b.Record()
	s.restart()
	b, err := s.rt.Open(s.ctx(), rec)
	if err != nil {
		t.Fatalf("open of a frozen box: %v", err)
	}
	if runs() {
		t.Error("a box that was frozen runs after it was opened")
	}
	for range 2 {
		if err := b.Thaw(s.ctx()); err != nil {
			t.Fatalf("thaw: %v", err)
		}
	}
	eventually(t, "it goes on", runs)
	if err := b.Freeze(s.ctx()); err != nil {
		t.Fatal(err)
	}
	s.destroy(b) // frozen as it is
	s.nothingLeft()
}

func testKillAgent(t *testing.T, s *suite) {
	s.need(runtime.FeatureKillAgent)
	b := s.create()
	g := s.guest(b)
	s.background(g, "trap '' TERM HUP INT; while :; do sleep 1; done")
	s.out(g, "(setsid nohup sleep 1000 >/dev/null 2>&1 &)")
	if err := b.KillAgent(s.ctx()); err != nil {
		t.Fatalf("kill: %v", err)
	}
	eventually(t, "no op runs", func() bool {
		ops, err := g.List(s.ctx())
		if err != nil {
			t.Fatalf("the guest was hit: %v", err)
		}
		for _, o := range ops {
			if o.Running {
				return false
			}
		}
		return true
	})
	if got := s.out(g, "ps ax 2>/dev/null | grep -c '[s]leep 1000' || true"); strings.TrimSpace(got) != "0" && got != "" {
		t.Errorf("%q processes have escaped", got)
	}
	s.destroy(b)
}

func testMemoryLimit(t *testing.T, s *suite) {
	s.need(runtime.FeatureMemory)
	b := s.create(func(c *runtime.Config) { c.Limits.Memory = 32 << 20 })
	g := s.guest(b)
	res := s.sh(g, "exec tail /dev/zero")
	if !res.OOM || res.Limit != guestproto.LimitMemory {
		t.Errorf("a process without bound ended like this: %+v", res)
	}
	sawOOM := false
	eventually(t, "the kill is told", func() bool {
		for !sawOOM {
			select {
			case e := <-b.Events():
				sawOOM = e.Kind == runtime.OOMKill
			default:
				return false
			}
		}
		return true
	})
	if got := s.out(g, "echo alive"); got != "alive\n" {
		t.Errorf("afterwards the box says %q", got)
	}
	s.destroy(b)
}

func testPidsLimit(t *testing.T, s *suite) {
	s.need(runtime.FeaturePids)
	b := s.create(func(c *runtime.Config) { c.Limits.Pids = 20 })
	g := s.guest(b)
	res := s.sh(g, "i=0; while [ $i -lt 100 ]; do sleep 1000 & i=$((i+1)); done; echo all")
	if strings.Contains(string(res.Stdout.Head), "all") {
		t.Error("100 processes ran within a limit of 20")
	}
	if err := b.KillAgent(s.ctx()); err != nil {
		t.Fatalf("kill: %v", err)
	}
	eventually(t, "the box works again", func() bool {
		res, err := g.Run(s.ctx(), guestproto.ExecRequest{OpID: op(), Argv: []string{"/bin/true"}})
		return err == nil && res.Error == nil && res.ExitCode == 0
	})
	s.destroy(b)
}

func testSetLimits(t *testing.T, s *suite) {
	b := s.create()
	l := runtime.Limits{Memory: 96 << 20, CPU: 0.5, Pids: 32}
	if err := b.SetLimits(s.ctx(), l); err != nil {
		t.Fatalf("set: %v", err)
	}
	if u, err := b.Usage(s.ctx()); err != nil || u.MemoryLimit != l.Memory {
		t.Errorf("usage %+v, %v", u, err)
	}
	s.destroy(b)
}

func testUsage(t *testing.T, s *suite) {
	s.need(runtime.FeatureUsage)
	b := s.create()
	g := s.guest(b)
	before, err := b.Usage(s.ctx())
	if err != nil {
		t.Fatal(err)
	}
	s.background(g, "sleep 1000")
	s.out(g, "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
	u, err := b.Usage(s.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU <= before.CPU || u.CPU > time.Minute {
		t.Errorf("cpu went from %v to %v", before.CPU, u.CPU)
	}
	if u.Pids < 1 || u.Memory <= 0 || u.Memory > u.MemoryLimit || u.MemoryPeak < u.Memory || u.MemoryLimit != 64<<20 {
		t.Errorf("usage %+v", u)
	}
	if s.has(runtime.FeatureDirs) {
		s.out(g, "dd if=/dev/zero of=/workspace/f bs=1M count=4; sync")
		if after, err := b.Usage(s.ctx()); err != nil || after.StoreUsed < 4<<20 || after.StoreUsed > after.StoreLimit {
			t.Errorf("store after 4 MiB: %+v, %v", after, err)
		}
	}
	s.destroy(b)
}
