package egress

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// full tells that the heavy numbers are wanted; what runs by default is small.
func full(many, few int) int {
	if os.Getenv("DSEC_TEST_EGRESS_FULL") == "1" {
		return many
	}
	return few
}

// metric reads one of the daemon's.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	res, err := http.Get(r.URL() + "/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				r.t.Fatal(err)
			}
			return v
		}
	}
	r.t.Fatalf("there is no metric %s", name)
	return 0
}

// held is what the daemon holds open: all descriptors, those of TAPs, and those of network namespaces.
type held struct{ fds, taps, netns int }

func (r *rig) held() (h held) {
	r.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", r.Pid())
	names, err := os.ReadDir(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, n := range names {
		target, _ := os.Readlink(filepath.Join(dir, n.Name()))
		h.fds++
		if target == "/dev/net/tun" {
			h.taps++
		}
		if strings.HasPrefix(target, "net:") {
			h.netns++
		}
	}
	return h
}

// cpu is what the daemon has used, in seconds.
func (r *rig) cpu() float64 {
	r.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.Pid()))
	if err != nil {
		r.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.ParseFloat(f[11], 64)
	sys, _ := strconv.ParseFloat(f[12], 64)
	return (user + sys) / 100
}

// eventually waits until ok, and tells how long that took.
func (r *rig) eventually(within time.Duration, what string, ok func() bool) time.Duration {
	r.t.Helper()
	start := time.Now()
	for !ok() {
		if time.Since(start) > within {
			r.t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(start)
}

// boxes makes n sessions of a spec.
func (r *rig) boxes(n int, specYAML string) []*dsec.Session {
	r.t.Helper()
	all, err := r.c.CreateN(r.t.Context(), n, dsec.CreateOptions{SpecYAML: specYAML}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []*dsec.Session
	for _, c := range all {
		if c.Err != nil {
			r.t.Fatal(c.Err)
		}
		out = append(out, c.Session)
	}
	return out
}

// background starts a program and gives its operation's id.
func (r *rig) background(s *dsec.Session, argv ...string) string {
	r.t.Helper()
	p, err := s.Start(r.t.Context(), dsec.Command{Argv: argv, Background: true})
	if err != nil {
		r.t.Fatal(err)
	}
	defer p.Close()
	return p.OpID()
}

// ended gives what a background program printed, when it has ended.
func (r *rig) ended(s *dsec.Session, op string) string {
	r.t.Helper()
	o, err := s.Op(r.t.Context(), op, true)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(dsec.Output(o.GetResult().GetStdout())) + string(dsec.Output(o.GetResult().GetStderr()))
}

// figure prints one that docs/benchmarks.md reports.
func figure(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("FIGURE "+format, args...)
}

// calm waits until what is allowed has come to its end on the uplink too, and gives the packets up to then.
func (r *rig) calm() int64 {
	r.t.Helper()
	r.eventually(20*time.Second, "connections have ended", func() bool { return r.metric("dsec_egress_connections") == 0 })
	before := r.Uplink()
	r.eventually(20*time.Second, "no packet leaves", func() bool {
		time.Sleep(200 * time.Millisecond)
		now := r.Uplink()
		quiet := now == before
		before = now
		return quiet
	})
	return before
}
