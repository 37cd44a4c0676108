package envd

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	pb "github.com/dsec-platform/dsec/gen/filesystem"
	"github.com/dsec-platform/dsec/gen/process"
	"github.com/dsec-platform/dsec/gen/process/processconnect"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

func bash(script string) *process.StartRequest {
	off := false
	return &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", script}}, Stdin: &off}
}

// heard is what a followed process said.
type heard struct {
	pid            uint32
	out, errs, pty strings.Builder
	end            *process.ProcessEvent_EndEvent
	pings          int
	order          []string
}

func (h *heard) take(ev *process.ProcessEvent) {
	switch e := ev.GetEvent().(type) {
	case *process.ProcessEvent_Start:
		h.pid = e.Start.GetPid()
		h.order = append(h.order, "start")
	case *process.ProcessEvent_Data:
		h.out.Write(e.Data.GetStdout())
		h.errs.Write(e.Data.GetStderr())
		h.pty.Write(e.Data.GetPty())
		if h.order[len(h.order)-1] != "data" {
			h.order = append(h.order, "data")
		}
	case *process.ProcessEvent_End:
		h.end = e.End
		h.order = append(h.order, "end")
	case *process.ProcessEvent_Keepalive:
		h.pings++
	}
}

// start starts a process and waits for its pid.
func (b *bench) start(t *testing.T, ctx context.Context, q *process.StartRequest) (processconnect.ProcessStartClientStream, *heard) {
	t.Helper()
	s, err := b.processes().Start(ctx, q)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	h := &heard{}
	m, err := s.Receive()
	must(t, err)
	if h.take(m.GetEvent()); h.pid == 0 {
		t.Fatalf("the first event is %v", m)
	}
	return s, h
}

// run runs a process to its end.
func (b *bench) run(t *testing.T, q *process.StartRequest, headers ...string) (*heard, error) {
	t.Helper()
	s, err := b.processes().Start(b.call(t, headers...), q)
	must(t, err)
	defer s.Close()
	h := &heard{}
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return h, nil
		}
		if err != nil {
			return h, err
		}
		h.take(m.GetEvent())
	}
}

func TestStart(t *testing.T) {
	b := newBench(t)
	h, err := b.run(t, bash("echo out; echo err >&2; exit 3"))
	must(t, err)
	if h.out.String() != "out\n" || h.errs.String() != "err\n" || strings.Join(h.order, " ") != "start data end" {
		t.Errorf("%+v", h)
	}
	if e := h.end; e.GetExitCode() != 3 || !e.GetExited() || e.GetStatus() != "exit status 3" || e.GetError() != "exit status 3" {
		t.Errorf("%v", e)
	}
	if h, err = b.run(t, bash("kill -KILL $$")); err != nil || h.end.GetExitCode() != -1 || h.end.GetExited() || h.end.GetStatus() != "signal: killed" {
		t.Errorf("%v %v", h.end, err)
	}
	if h, err = b.run(t, bash("true")); err != nil || h.end.Error != nil || h.end.GetStatus() != "exit status 0" || h.pid == 0 {
		t.Errorf("%v %v", h.end, err)
	}
	q := bash(`echo "$PWD $X $E2B_SANDBOX"`)
	q.Process.Envs = map[string]string{"X": "1"}
	if h, err = b.run(t, q); err != nil || h.out.String() != b.home+" 1 true\n" {
		t.Errorf("%q %v: not in the home", h.out.String(), err)
	}
	for cwd, want := range map[string]string{"/usr": "/usr", "~": b.home, ".": b.home} {
		q := bash("pwd")
		q.Process.Cwd = &cwd
		if h, err = b.run(t, q); err != nil || h.out.String() != want+"\n" {
			t.Errorf("%s: %q %v", cwd, h.out.String(), err)
		}
	}
	// Input is open unless it is said not to be, and then at its end.
	q = bash("cat; echo end")
	if h, err = b.run(t, q); err != nil || h.out.String() != "end\n" {
		t.Errorf("%q %v", h.out.String(), err)
	}
}

func TestStartRefusals(t *testing.T) {
	b := newBench(t)
	nowhere, others, long := "/no/such/directory", "~other/x", strings.Repeat("x", maxText)
	change := func(f func(*process.StartRequest)) *process.StartRequest { q := bash("true"); f(q); return q }
	for name, tc := range map[string]struct {
		q    *process.StartRequest
		code connect.Code
	}{
		"no program":   {&process.StartRequest{}, connect.CodeInvalidArgument},
		"no such one":  {change(func(q *process.StartRequest) { q.Process.Cmd = "/no/such" }), connect.CodeInvalidArgument},
		"no directory": {change(func(q *process.StartRequest) { q.Process.Cwd = &nowhere }), connect.CodeInvalidArgument},
		"other's home": {change(func(q *process.StartRequest) { q.Process.Cwd = &others }), connect.CodeInvalidArgument},
		"too long":     {bash(long), connect.CodeResourceExhausted},
		"env":          {change(func(q *process.StartRequest) { q.Process.Envs = map[string]string{"A=B": ""} }), connect.CodeInvalidArgument},
		"tag":          {change(func(q *process.StartRequest) { tag := long[:300]; q.Tag = &tag }), connect.CodeInvalidArgument},
		"window": {change(func(q *process.StartRequest) {
			q.Pty = &process.PTY{Size: &process.PTY_Size{Rows: 1 << 20}}
		}), connect.CodeInvalidArgument},
	} {
		_, err := b.run(t, tc.q)
		t.Log(name, err)
		wantCode(t, err, tc.code)
	}
	_, err := b.run(t, bash("true"), "Authorization", basic("no-such-user"))
	wantCode(t, err, connect.CodeUnauthenticated)
	_, err = b.run(t, bash("true"), "Authorization", basic("a/b"))
	wantCode(t, err, connect.CodeUnauthenticated)
	_, err = b.run(t, bash("true"), "Authorization", "Basic ?")
	wantCode(t, err, connect.CodeUnauthenticated)
	for _, token := range []string{"", "wrong"} {
		_, err = b.run(t, bash("true"), headerToken, token)
		wantCode(t, err, connect.CodeUnauthenticated)
	}
	for _, reason := range []errdefs.Reason{errdefs.Conflict, errdefs.NotFound, errdefs.BoxGone, errdefs.BoxTampered} {
		b.guest = unreachable(reason)
		_, err = b.run(t, bash("true"))
		wantCode(t, err, connect.CodeUnavailable)
		if !strings.Contains(err.Error(), "was not found") {
			t.Errorf("SDKs would not know that it is not running: %v", err)
		}
	}
}

// TestDefaults: a sandbox has a user and a directory of its own, which requests override.
func TestDefaults(t *testing.T) {
	needRoot(t)
	b := newBench(t)
	b.sandbox.User, b.sandbox.Workdir = "daemon", "/usr/bin"
	if h, err := b.run(t, bash("id -un; pwd")); err != nil || h.out.String() != "daemon\n/usr/bin\n" {
		t.Errorf("%q %v", h.out.String(), err)
	}
	if h, err := b.run(t, bash("id -un; pwd"), "Authorization", basic("root")); err != nil || h.out.String() != "root\n/usr/bin\n" {
		t.Errorf("%q %v", h.out.String(), err)
	}
	dir := t.TempDir()
	if res, text := b.do(t, "POST", "/files?path="+dir+"/f", strings.NewReader("x"), "Content-Type", "application/octet-stream"); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	st, err := b.files().Stat(b.call(t), &pb.StatRequest{Path: dir + "/f"})
	if err != nil || st.GetEntry().GetOwner() != "daemon" {
		t.Errorf("%v %v", st, err)
	}
}

func TestUserOfProcess(t *testing.T) {
	needRoot(t)
	b := newBench(t)
	h, err := b.run(t, bash(`id -un; echo "$USER $LOGNAME"`), "Authorization", basic("daemon"))
	if err != nil || h.out.String() != "daemon\ndaemon daemon\n" {
		t.Errorf("%q %v", h.out.String(), err)
	}
}

// raw starts a process as an SDK does, byte by byte.
func (b *bench) raw(t *testing.T, script string, headers ...string) string {
	t.Helper()
	m := `{"process":{"cmd":"/bin/bash","args":["-l","-c",` + strconv.Quote(script) + `]},"stdin":false}`
	head := []byte{0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[1:], uint32(len(m)))
	_, text := b.do(t, "POST", "/process.Process/Start", strings.NewReader(string(head)+m),
		append([]string{"Content-Type", "application/connect+json", "Connect-Protocol-Version", "1"}, headers...)...)
	return text
}

// TestDeadline: the call's deadline is the process's, and of all that it started.
func TestDeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	text := b.raw(t, "echo begun; (sleep 4; touch "+dir+"/late) & sleep 100", "Connect-Timeout-Ms", "3000")
	if !strings.Contains(text, `"deadline_exceeded"`) || !strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("begun\n"))) {
		t.Errorf("%q", text)
	}
	time.Sleep(2 * time.Second)
	if _, err := os.Stat(dir + "/late"); err == nil {
		t.Error("what it started lives on")
	}
	if text := b.raw(t, "echo x", "Connect-Timeout-Ms", "0"); !strings.Contains(text, `"exit status 0"`) {
		t.Errorf("%q", text)
	}
}

// TestReattach: a process outlives its client; who comes back gets what comes then, and it is
// found by pid and by tag, also by a server that never saw it.
func TestReattach(t *testing.T) {
	b := newBench(t)
	tag := "näme"
	q := bash("echo one; read a; echo two $a; read b; echo three; exit 5")
	q.Stdin, q.Tag, q.Process.Envs = nil, &tag, map[string]string{"SECRET": "x"}
	ctx, leave := context.WithCancel(b.call(t))
	s, h := b.start(t, ctx, q)
	m, err := s.Receive()
	must(t, err)
	h.take(m.GetEvent())
	leave()
	if h.out.String() != "one\n" {
		t.Fatalf("%q", h.out.String())
	}
	list, err := b.processes().List(b.call(t), &process.ListRequest{})
	must(t, err)
	if len(list.GetProcesses()) != 1 {
		t.Fatalf("%v", list)
	}
	if p := list.GetProcesses()[0]; p.GetPid() != h.pid || p.GetTag() != tag || p.GetConfig().GetCmd() != "/bin/bash" ||
		len(p.GetConfig().GetArgs()) != 3 || p.GetConfig().GetEnvs()["SECRET"] != "x" || p.GetConfig().Cwd != nil {
		t.Errorf("%v", p)
	}
	byPid := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: h.pid}}
	byTag := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: tag}}
	b.h.known.init() // another server
	back, err := b.processes().Connect(b.call(t), &process.ConnectRequest{Process: byTag})
	must(t, err)
	defer back.Close()
	again := &heard{}
	c, err := back.Receive()
	must(t, err)
	if again.take(c.GetEvent()); again.pid != h.pid {
		t.Fatalf("%v", c)
	}
	send := func(sel *process.ProcessSelector, text string) {
		t.Helper()
		_, err := b.processes().SendInput(b.call(t), &process.SendInputRequest{Process: sel, Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte(text)}}})
		must(t, err)
	}
	b.h.known.init()
	send(byPid, "A\n")
	b.h.known.init() // the place in the input is found again
	send(byTag, "B\n")
	for again.end == nil {
		c, err := back.Receive()
		must(t, err)
		again.take(c.GetEvent())
	}
	if again.out.String() != "two A\nthree\n" || again.end.GetExitCode() != 5 {
		t.Errorf("%q %v", again.out.String(), again.end)
	}
	for _, sel := range []*process.ProcessSelector{byPid, byTag} {
		_, err = b.processes().SendInput(b.call(t), &process.SendInputRequest{Process: sel})
		wantCode(t, err, connect.CodeNotFound)
	}
	_, err = b.processes().SendSignal(b.call(t), &process.SendSignalRequest{Process: byPid, Signal: process.Signal_SIGNAL_SIGKILL})
	wantCode(t, err, connect.CodeNotFound)
	_, err = b.processes().CloseStdin(b.call(t), &process.CloseStdinRequest{})
	wantCode(t, err, connect.CodeInvalidArgument)
}
