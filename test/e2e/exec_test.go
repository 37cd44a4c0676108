package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func mustRun(t *testing.T, s *dsec.Session, cmd dsec.Command) *dsec.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience(time.Minute))
	defer cancel()
	r, err := s.Run(ctx, cmd)
	if err != nil {
		t.Fatal(err)
	}
	if e := r.GetError(); e != nil {
		t.Fatal(dsec.FromWire(e))
	}
	return r
}

func stdout(r *dsec.Result) string { return string(dsec.Output(r.GetStdout())) }

func TestExecBasics(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{Env: map[string]string{"GREETING": "hello"}, Secrets: map[string]string{"TOKEN": "s3cret"}})
	nul := mustRun(t, s, dsec.Command{Script: `printf 'a\0b'; printf 'err' >&2; exit 3`})
	if stdout(nul) != "a\x00b" || string(dsec.Output(nul.GetStderr())) != "err" || nul.GetExitCode() != 3 {
		t.Errorf("%q %q %d", stdout(nul), dsec.Output(nul.GetStderr()), nul.GetExitCode())
	}
	if r := mustRun(t, s, dsec.Command{Argv: []string{"cat"}}); r.GetExitCode() != 0 || stdout(r) != "" {
		t.Errorf("cat without input: %v", r)
	}
	if r := mustRun(t, s, dsec.Command{Argv: []string{"cat"}, Stdin: []byte("in\x00put")}); stdout(r) != "in\x00put" {
		t.Errorf("cat gave %q", stdout(r))
	}
	if r := mustRun(t, s, dsec.Command{Argv: []string{"id", "-u"}}); stdout(r) != "1000\n" {
		t.Errorf("default user is %q", stdout(r))
	}
	if r := mustRun(t, s, dsec.Command{Argv: []string{"id", "-u"}, User: "root"}); stdout(r) != "0\n" {
		t.Errorf("root is %q", stdout(r))
	}
	if r := mustRun(t, s, dsec.Command{Script: `echo $GREETING $TOKEN`}); stdout(r) != "hello s3cret\n" {
		t.Errorf("environment: %q", stdout(r))
	}
	if r := mustRun(t, s, dsec.Command{Script: `kill -9 $$`}); r.GetSignal() != "SIGKILL" || r.GetOom() {
		t.Errorf("killed: %v", r)
	}
	long := strings.Repeat("x", 200_000)
	if r := mustRun(t, s, dsec.Command{Script: "echo " + long + " | wc -c"}); stdout(r) != "200001\n" {
		t.Errorf("a long command line gave %q", stdout(r))
	}
	for name, cmd := range map[string]dsec.Command{
		"program": {Argv: []string{"no-such-program"}}, "cwd": {Argv: []string{"true"}, Cwd: "/no/such"}, "user": {Argv: []string{"true"}, User: "nosuchuser"},
	} {
		r, err := s.Run(t.Context(), cmd)
		if err == nil {
			err = dsec.FromWire(r.GetError())
		}
		var e *dsec.Error
		if !errors.As(err, &e) || e == nil || e.Class != dsec.ClassUser {
			t.Errorf("missing %s: %v", name, err)
		}
	}
}

func TestSecretsStayInTheSession(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{Secrets: map[string]string{"TOKEN": "needle-5f2e1"}})
	mustRun(t, s, dsec.Command{Argv: []string{"true"}})
	insp, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(insp.String(), "needle-5f2e1") {
		t.Error("inspect shows a secret")
	}
	if strings.Contains(shared.Log(), "needle-5f2e1") {
		t.Error("the log shows a secret")
	}
	if found := grepTree(t, shared.DataDir(), "needle-5f2e1"); found != "" {
		t.Errorf("%s holds a secret", found)
	}
}

func TestTimeoutKillsTheTree(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	start := time.Now()
	r := mustRun(t, s, dsec.Command{Script: `echo begin; setsid nohup sh -c 'sleep 300' & (sleep 301 &) ; sleep 302`, Timeout: 500 * time.Millisecond})
	if !r.GetTimedOut() || stdout(r) != "begin\n" || time.Since(start) > patience(5*time.Second) {
		t.Errorf("timed out %v, output %q, after %v", r.GetTimedOut(), stdout(r), time.Since(start))
	}
	if r := mustRun(t, s, dsec.Command{Script: `cat /proc/[0-9]*/comm | grep -c sleep`}); stdout(r) != "0\n" {
		t.Errorf("%s processes survived", strings.TrimSpace(stdout(r)))
	}
}

func TestBackgroundWithInheritedPipes(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	later := patience(time.Second)
	start := time.Now()
	r := mustRun(t, s, dsec.Command{OpID: "bg", Script: fmt.Sprintf(`(sleep %d; echo later; sleep 300) & echo now`, int(later.Seconds()))})
	if time.Since(start) > later*9/10 || !strings.HasPrefix(stdout(r), "now") || r.GetSurvivors() == 0 {
		t.Errorf("after %v: %q, %d survivors", time.Since(start), stdout(r), r.GetSurvivors())
	}
	deadline := time.Now().Add(patience(10 * time.Second))
	for {
		op, err := s.Op(t.Context(), "bg", true)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(dsec.Output(op.GetResult().GetStdout())), "later") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the later output did not come: %v", op)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := s.Signal(t.Context(), "bg", "SIGKILL", true); err != nil {
		t.Fatal(err)
	}
}

func TestShellSessionKeepsItsState(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	sh := func(script string, timeout time.Duration) *dsec.Result {
		return mustRun(t, s, dsec.Command{ShellSession: "main", Script: script, Timeout: timeout})
	}
	sh(`cd /tmp; export A=1; b=2; f() { echo f$1; }; alias ll='echo aliased'; set -u`, 0)
	if r := sh(`echo $PWD $A $b; f 3; ll; echo $-`, 0); !strings.HasPrefix(stdout(r), "/tmp 1 2\nf3\naliased\n") || !strings.Contains(stdout(r), "u") {
		t.Errorf("%q %q", stdout(r), dsec.Output(r.GetStderr()))
	}
	if r := sh(`exit 3`, 0); r.GetExitCode() != 3 {
		t.Errorf("exit gave %d", r.GetExitCode())
	}
	if r := sh(`sleep 100`, 200*time.Millisecond); !r.GetTimedOut() {
		t.Errorf("no time-out: %v", r)
	}
	sh(`kill -9 $$`, 0)
	if r := sh(`echo $PWD $A $b`, 0); stdout(r) != "/tmp 1 2\n" {
		t.Errorf("after exit, time-out and kill: %q", stdout(r))
	}
}

func TestOpIdsAreExactlyOnce(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	cmd := dsec.Command{OpID: "once", Script: `echo x >> /workspace/n; wc -l < /workspace/n; sleep 0.2`}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r, err := s.Run(t.Context(), cmd)
			if err != nil || stdout(r) != "1\n" {
				t.Errorf("%v %v", err, r)
			}
		})
	}
	wg.Wait()
	cmd.Script = "echo other"
	if _, err := s.Run(t.Context(), cmd); !dsec.IsReason(err, "idempotency_clash") {
		t.Errorf("another request under the same id: %v", err)
	}
}

func TestFilesRoundTrip(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{SpecYAML: "fs: {writable_size_limit: 32Mi}"})
	ctx := t.Context()
	for _, name := range []string{"plain", "with space", "new\nline", "\xff\xfe", strings.Repeat("n", 255)} {
		data := make([]byte, 100_000)
		_, _ = rand.Read(data)
		p := "/workspace/dir/" + name
		if _, err := s.WriteFile(ctx, p, bytes.NewReader(data), dsec.WriteOptions{Parents: true}); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		rc, err := s.ReadFile(ctx, p, dsec.ReadOptions{})
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		got, err := io.ReadAll(rc)
		rc.Close()
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%q came back different: %v", name, err)
		}
	}
	n := 0
	for _, err := range s.ListDir(ctx, "/workspace/dir", 1) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 5 {
		t.Errorf("%d entries", n)
	}
	rc, err := s.Tar(ctx, "/workspace/dir")
	if err != nil {
		t.Fatal(err)
	}
	err = s.Untar(ctx, "/workspace/copy", rc)
	rc.Close()
	if err != nil {
		t.Fatal(err)
	}
	if r := mustRun(t, s, dsec.Command{Argv: []string{"diff", "-r", "/workspace/dir", "/workspace/copy"}}); r.GetExitCode() != 0 {
		t.Errorf("the tar's way there and back: %s", stdout(r))
	}
	_, err = s.WriteFile(ctx, "/workspace/too-big", io.LimitReader(zeros{}, 4<<30), dsec.WriteOptions{})
	var e *dsec.Error
	if !errors.As(err, &e) || e.Class != dsec.ClassLimit {
		t.Errorf("past the size limit: %v", err)
	}
	mustRun(t, s, dsec.Command{Argv: []string{"true"}})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestSuspendAndResume(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	ctx := t.Context()
	p, err := s.Start(ctx, dsec.Command{OpID: "tick", Script: `while :; do echo >> /workspace/t; sleep 0.05; done`})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	time.Sleep(200 * time.Millisecond)
	if err := s.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	info, err := s.Get(ctx)
	if err != nil || info.GetPhase() != dsec.Suspended {
		t.Fatalf("%v %v", info.GetPhase(), err)
	}
	// Any op resumes the session first.
	mustRun(t, s, dsec.Command{Argv: []string{"true"}})
	if info, _ := s.Get(ctx); info.GetPhase() != dsec.Running {
		t.Errorf("after an op it is %s", info.GetPhase())
	}
}

func TestIdempotentCreateAndStopByJob(t *testing.T) {
	ctx := t.Context()
	o := dsec.CreateOptions{IdempotencyKey: fmt.Sprintf("key-%d", time.Now().UnixNano()), Job: "job-e2e", SpecYAML: "mem_limit: 16Mi"}
	first, err := shared.c.CreateN(ctx, 5, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := shared.c.CreateN(ctx, 5, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range first {
		if first[i].Err != nil || again[i].Err != nil || first[i].Session.ID() != again[i].Session.ID() {
			t.Errorf("item %d: %v %v", i, first[i], again[i])
		}
	}
	o.SpecYAML = "mem_limit: 32Mi"
	if _, err := shared.c.CreateN(ctx, 5, o, nil); !dsec.IsReason(err, "idempotency_clash") {
		t.Errorf("another request under the key: %v", err)
	}
	out, err := shared.c.Stop(ctx, dsec.ByJob("job-e2e"), "done")
	if err != nil || len(out) != 5 {
		t.Fatalf("%d stopped, %v", len(out), err)
	}
	for _, r := range out {
		if r.GetSession().GetPhase() != dsec.Completed || r.GetSession().GetReclaim() != "acked" {
			t.Errorf("%s is %s, reclaim %s", r.GetId(), r.GetSession().GetPhase(), r.GetSession().GetReclaim())
		}
	}
}

// grepTree names the first regular file below dir that contains needle.
func grepTree(t *testing.T, dir, needle string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		p := dir + "/" + e.Name()
		switch {
		case e.IsDir() && e.Name() != "layers":
			if f := grepTree(t, p, needle); f != "" {
				return f
			}
		case e.Type().IsRegular():
			if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(needle)) {
				return p
			}
		}
	}
	return ""
}
