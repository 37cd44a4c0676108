package guest_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// shell runs scripts one after the other in a session.
type shell struct {
	t     *testing.T
	run   func(r guestproto.ExecRequest) *guestproto.Result
	shell string
}

func newShell(t *testing.T, path string) *shell {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("this machine has no %s", path)
	}
	c := client(t)
	return &shell{t, func(r guestproto.ExecRequest) *guestproto.Result { return run(t, c, r) }, path}
}

func (s *shell) do(script string) *guestproto.Result {
	s.t.Helper()
	return s.run(guestproto.ExecRequest{Script: script, ShellSession: "main", Shell: s.shell})
}

func (s *shell) want(script, out string) {
	s.t.Helper()
	r := s.do(script)
	if string(r.Stdout.Head) != out || len(r.Stderr.Head) > 0 || r.ExitCode < 0 {
		s.t.Errorf("%q gave %q, stderr %q, code %d; want %q", script, r.Stdout.Head, r.Stderr.Head, r.ExitCode, out)
	}
}

func TestBashSession(t *testing.T) {
	s := newShell(t, "/bin/bash")
	dir := t.TempDir()
	s.want("cd '"+dir+"'; mkdir \"a b\"; cd 'a b'; export E='x y'; V=1; arr=(one 'two 2'); declare -A map=([k]=v); f() { echo \"f:$1\"; }; alias hi='echo hello'; umask 077", "")
	s.want("pwd; echo \"$E,$V,${arr[1]},${map[k]}\"; f z; hi; umask; env | grep '^E='", dir+"/a b\nx y,1,two 2,v\nf:z\nhello\n0077\nE=x y\n")
	s.want("W=$'new\\nline\\x01\\xff'; printf %s \"$W\"", "new\nline\x01\xff")
	s.want("printf %s \"$W\"", "new\nline\x01\xff")
	s.want("unset E V; unset -f f; unalias hi", "")
	s.want("echo \"${E-none},${V-none}\"; type f hi >/dev/null 2>&1; echo $?", "none,none\n1\n")
	s.want("export -f 2>/dev/null; g() { echo g; }; export -f g", "")
	s.want("bash -c g", "g\n")
	s.want("readonly R=1; IFS=,", "")
	s.want("x=a,b; set -- $x; echo $#$R", "21\n")
	s.want("shopt -s nullglob; shopt -q nullglob; echo $?", "0\n")
	s.want("shopt -q nullglob; echo $?; set -f", "0\n")
	s.want("echo *; set +f", "*\n")
}

func TestBashSessionSurvives(t *testing.T) {
	s := newShell(t, "/bin/bash")
	s.want("A=1", "")
	if r := s.do("A=2; exit 3"); r.ExitCode != 3 {
		t.Errorf("exit: %+v", r)
	}
	s.want("echo $A", "2\n")
	if r := s.do("set -eu; A=3; false; echo not reached"); r.ExitCode != 1 || len(r.Stdout.Head) > 0 {
		t.Errorf("set -e: %+v", r)
	}
	s.want("echo $A", "3\n")
	if r := s.do("echo $unset_variable"); r.ExitCode == 0 {
		t.Error("set -u was not kept")
	}
	s.want("set +eu; echo $A", "3\n")
	s.want("A=4; exec echo gone", "gone\n")
	s.want("echo $A", "3\n") // what a replaced shell knew is lost, the session is not
	if r := s.do("A=5; kill -9 $$"); r.Signal != "SIGKILL" {
		t.Errorf("kill: %+v", r)
	}
	s.want("echo $A", "3\n")
	if r := s.do("A=6; kill -TERM $$; sleep 1"); r.Signal != "SIGTERM" && r.ExitCode != 143 {
		t.Errorf("term: %+v", r)
	}
	if r := s.do("if"); r.ExitCode == 0 || len(r.Stderr.Head) == 0 {
		t.Errorf("syntax error: %+v", r)
	}
	r := s.run(guestproto.ExecRequest{Script: "A=7; sleep 60", ShellSession: "main", TimeoutMs: 200})
	if !r.TimedOut {
		t.Errorf("time-out: %+v", r)
	}
	s.want("echo ok", "ok\n")
	if r := s.do("set -x; true"); !strings.Contains(string(r.Stderr.Head), "+ true\n") || strings.Contains(string(r.Stderr.Head), "__dsec") {
		t.Errorf("xtrace: %q", r.Stderr.Head)
	}
	if r := s.do("echo traced"); !strings.Contains(string(r.Stderr.Head), "echo traced") {
		t.Errorf("xtrace was not kept: %q", r.Stderr.Head)
	}
	s.do("set +x")
	s.want("echo junk >&99; cd /", "")
	s.want("pwd", "/\n")
}

func TestSessionStuckCommandDoesNotBlock(t *testing.T) {
	c := client(t)
	if _, err := c.Start(soon(t), guestproto.ExecRequest{OpID: "stuck", Script: "sleep 60", ShellSession: "s"}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if r := run(t, c, guestproto.ExecRequest{Script: "echo free", ShellSession: "s"}); string(r.Stdout.Head) != "free\n" || time.Since(start) > 10*time.Second {
		t.Errorf("%+v", r)
	}
	if err := c.CloseShell(soon(t), "s"); err != nil {
		t.Fatal(err)
	}
	if s := follow(t, c, "stuck", 0); s != "" {
		t.Error(s)
	}
	wantError(t, c.CloseShell(soon(t), "s"), errdefs.User, errdefs.NotFound, "shell session s")
}

func TestShSession(t *testing.T) {
	s := newShell(t, "/bin/sh")
	dir := t.TempDir()
	s.want("cd '"+dir+"'; export E='x y'; V=\"it's\"; umask 027; set -f", "")
	s.want("pwd; echo \"$E,$V\"; umask; echo *; env | grep '^E='", dir+"\nx y,it's\n0027\n*\nE=x y\n")
	if r := s.do("V=2; exit 3"); r.ExitCode != 3 {
		t.Errorf("%+v", r)
	}
	s.want("echo $V", "2\n")
	r := s.run(guestproto.ExecRequest{Script: "pwd; echo $N", ShellSession: "main", Cwd: "/usr", Env: []string{"N=new"}})
	if string(r.Stdout.Head) != "/usr\nnew\n" {
		t.Errorf("%q %q", r.Stdout.Head, r.Stderr.Head)
	}
}
