package envd

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/dsec-platform/dsec/gen/process"
	"github.com/dsec-platform/dsec/gen/process/processconnect"
)

func TestInput(t *testing.T) {
	b := newBench(t)
	q := bash("cat | wc -c")
	q.Stdin = nil
	s, h := b.start(t, b.call(t), q)
	sel := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: h.pid}}
	in, err := b.processes().StreamInput(b.call(t))
	must(t, err)
	must(t, in.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Start{Start: &process.StreamInputRequest_StartEvent{Process: sel}}}))
	for range 10 {
		must(t, in.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Data{Data: &process.StreamInputRequest_DataEvent{
			Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: make([]byte, 100_000)}}}}}))
		must(t, in.Send(&process.StreamInputRequest{Event: &process.StreamInputRequest_Keepalive{}}))
	}
	_, err = in.CloseAndReceive()
	must(t, err)
	_, err = b.processes().SendInput(b.call(t), &process.SendInputRequest{Process: sel, Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("end")}}})
	must(t, err)
	_, err = b.processes().SendInput(b.call(t), &process.SendInputRequest{Process: sel, Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte("x")}}})
	wantCode(t, err, connect.CodeFailedPrecondition)
	_, err = b.processes().SendInput(b.call(t), &process.SendInputRequest{Process: sel})
	wantCode(t, err, connect.CodeInvalidArgument)
	_, err = b.processes().Update(b.call(t), &process.UpdateRequest{Process: sel, Pty: &process.PTY{Size: &process.PTY_Size{Rows: 5}}})
	wantCode(t, err, connect.CodeFailedPrecondition)
	_, err = b.processes().CloseStdin(b.call(t), &process.CloseStdinRequest{Process: sel})
	must(t, err)
	finish(t, s, h)
	if h.out.String() != "1000003\n" {
		t.Errorf("%q", h.out.String())
	}
}

func finish(t *testing.T, s processconnect.ProcessStartClientStream, h *heard) {
	t.Helper()
	for h.end == nil {
		m, err := s.Receive()
		must(t, err)
		h.take(m.GetEvent())
	}
}

func TestSignalAndNoInput(t *testing.T) {
	b := newBench(t)
	s, h := b.start(t, b.call(t), bash("trap 'echo caught; exit 7' TERM; echo set; while :; do sleep 0.05; done"))
	sel := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: h.pid}}
	_, err := b.processes().SendInput(b.call(t), &process.SendInputRequest{Process: sel, Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}})
	wantCode(t, err, connect.CodeFailedPrecondition)
	_, err = b.processes().CloseStdin(b.call(t), &process.CloseStdinRequest{Process: sel})
	must(t, err)
	_, err = b.processes().SendSignal(b.call(t), &process.SendSignalRequest{Process: sel})
	wantCode(t, err, connect.CodeUnimplemented)
	for h.out.Len() == 0 {
		m, err := s.Receive()
		must(t, err)
		h.take(m.GetEvent())
	}
	_, err = b.processes().SendSignal(b.call(t), &process.SendSignalRequest{Process: sel, Signal: process.Signal_SIGNAL_SIGTERM})
	must(t, err)
	finish(t, s, h)
	if h.end.GetExitCode() != 7 || h.out.String() != "set\ncaught\n" {
		t.Errorf("%v %q", h.end, h.out.String())
	}
	s, h = b.start(t, b.call(t), bash("sleep 100"))
	sel = &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: h.pid}}
	_, err = b.processes().SendSignal(b.call(t), &process.SendSignalRequest{Process: sel, Signal: process.Signal_SIGNAL_SIGKILL})
	must(t, err)
	if finish(t, s, h); h.end.GetStatus() != "signal: killed" || h.end.GetError() == "" {
		t.Errorf("%v", h.end)
	}
}

func TestPty(t *testing.T) {
	b := newBench(t)
	s, h := b.start(t, b.call(t), &process.StartRequest{
		Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-i", "-l"}, Envs: map[string]string{"PS1": "$ ", "TERM": "xterm"}},
		Pty:     &process.PTY{Size: &process.PTY_Size{Rows: 30, Cols: 100}},
	})
	sel := &process.ProcessSelector{Selector: &process.ProcessSelector_Pid{Pid: h.pid}}
	typed := func(text string) {
		t.Helper()
		_, err := b.processes().SendInput(b.call(t), &process.SendInputRequest{Process: sel, Input: &process.ProcessInput{Input: &process.ProcessInput_Pty{Pty: []byte(text)}}})
		must(t, err)
	}
	until := func(text string) {
		t.Helper()
		for !strings.Contains(h.pty.String(), text) {
			m, err := s.Receive()
			if err != nil {
				t.Fatalf("%v after %q", err, h.pty.String())
			}
			h.take(m.GetEvent())
		}
	}
	typed("stty size; test -t 0 && echo a$((1+1))terminal\n")
	until("a2terminal")
	until("30 100")
	_, err := b.processes().Update(b.call(t), &process.UpdateRequest{Process: sel, Pty: &process.PTY{Size: &process.PTY_Size{Rows: 40, Cols: 120}}})
	must(t, err)
	typed("stty size\n")
	until("40 120")
	_, err = b.processes().SendInput(b.call(t), &process.SendInputRequest{Process: sel, Input: &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("x")}}})
	wantCode(t, err, connect.CodeFailedPrecondition)
	_, err = b.processes().CloseStdin(b.call(t), &process.CloseStdinRequest{Process: sel})
	wantCode(t, err, connect.CodeFailedPrecondition)
	_, err = b.processes().Update(b.call(t), &process.UpdateRequest{Process: sel})
	wantCode(t, err, connect.CodeInvalidArgument)
	typed("exit 4\n")
	finish(t, s, h)
	if h.end.GetExitCode() != 4 || h.out.Len() > 0 {
		t.Errorf("%v %q", h.end, h.out.String())
	}
}

func TestPings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h, err := b.run(t, bash("sleep 2.5; echo done"), "Keepalive-Ping-Interval", "1")
	if err != nil || h.pings < 1 || h.out.String() != "done\n" {
		t.Errorf("%d pings, %q %v", h.pings, h.out.String(), err)
	}
	for s, want := range map[string]time.Duration{"50": 50 * time.Second, "": defaultPing, "0": defaultPing, "-1": defaultPing, "1e9": defaultPing, "99999": defaultPing} {
		if got := parseInterval(s); got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
}

// TestLateReader: who takes output late gets all of it.
func TestLateReader(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s, h := b.start(t, b.call(t), bash("head -c 30000000 /dev/zero"))
	time.Sleep(3 * time.Second)
	n := 0
	for h.end == nil {
		m, err := s.Receive()
		must(t, err)
		n += len(m.GetEvent().GetData().GetStdout())
		h.take(&process.ProcessEvent{Event: m.GetEvent().GetEvent()})
		h.out.Reset()
	}
	if n != 30_000_000 {
		t.Errorf("got %d bytes", n)
	}
}
