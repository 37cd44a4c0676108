package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// held is what a process of the platform holds, as the host sees it.
type held struct{ rssKiB, threads, fds int }

func holds(t *testing.T, pid int) held {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var h held
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		switch {
		case len(f) > 1 && f[0] == "VmRSS:":
			h.rssKiB, _ = strconv.Atoi(f[1])
		case len(f) > 1 && f[0] == "Threads:":
			h.threads, _ = strconv.Atoi(f[1])
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	h.fds = len(fds)
	return h
}

// Thousands of ops, in sequence and at once, leave no process, descriptor or memory behind,
// neither in the box nor in the daemon.
func TestManyOpsLeaveNothing(t *testing.T) {
	n := 1500
	if v := os.Getenv("DSEC_TEST_OPS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	e := startOwn(t, "--no-pool")
	s := e.session(t, dsec.CreateOptions{SpecYAML: "pid_limit: 2000"})
	var failed atomic.Int64
	op := func(i int) {
		r, err := s.Run(t.Context(), dsec.Command{Argv: []string{"echo", strconv.Itoa(i)}})
		if err != nil || r.GetExitCode() != 0 || stdout(r) != fmt.Sprintf("%d\n", i) {
			if failed.Add(1) < 5 {
				t.Errorf("op %d: %v %v", i, err, r)
			}
		}
	}
	pids := e.guests()
	if len(pids) != 1 {
		t.Fatalf("%d guests", len(pids))
	}
	together := func(n, width int) {
		var wg sync.WaitGroup
		next := atomic.Int64{}
		for range width {
			wg.Go(func() {
				for i := next.Add(1); i <= int64(n); i = next.Add(1) {
					op(int(i))
				}
			})
		}
		wg.Wait()
	}
	together(1000, 1000) // all at once
	for i := range n / 10 {
		op(i)
	}
	// A guest with nothing to do would rest, and hold nothing whatever it has leaked.
	if _, err := s.Run(t.Context(), dsec.Command{OpID: "awake", Argv: []string{"sleep", "3600"}, Background: true}); err != nil {
		t.Fatal(err)
	}
	e.c.Close()
	guest, daemon := holds(t, pids[0]), holds(t, e.Pid())
	for i := range n {
		op(i)
	}
	together(1000, 1000)
	e.c.Close()
	if failed.Load() > 0 {
		t.Errorf("%d ops failed", failed.Load())
	}
	mib := 1 << 10
	// What the garbage collectors have not given back yet is not a leak: the bounds are wide.
	last := ""
	defer func() { t.Logf("guest and daemon: %+v %+v, then %s", guest, daemon, last) }()
	eventually(t, "guest and daemon hold what they held", func() bool {
		g, d := holds(t, pids[0]), holds(t, e.Pid())
		last = fmt.Sprintf("%+v %+v", g, d)
		return g.fds <= guest.fds+4 && g.rssKiB <= guest.rssKiB+8*mib && g.threads <= guest.threads+4 &&
			d.fds <= daemon.fds+16 && d.rssKiB <= daemon.rssKiB+48*mib && d.threads <= daemon.threads+16
	})
	if last, guests := holds(t, pids[0]), e.guests(); last.threads < 2 || len(guests) != 1 {
		t.Errorf("the guest was not looked at but at rest: %+v %v", last, guests)
	}
	if err := s.Signal(t.Context(), "awake", "SIGKILL", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of sleep", func() bool {
		op, err := s.Op(t.Context(), "awake", false)
		return err == nil && !op.GetRunning()
	})
	r := mustRun(t, s, dsec.Command{Script: `ls -d /proc/[0-9]* | wc -l`})
	if n := strings.TrimSpace(stdout(r)); len(n) > 1 {
		t.Errorf("%s processes are in the box", n)
	}
}
