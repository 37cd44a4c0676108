package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// screen collects what a terminal shows until the operation ends.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
	exit *dsec.Result
	err  error
	done chan struct{}
}

func watch(p *dsec.Process) *screen {
	s := &screen{done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			ev, err := p.Recv()
			s.mu.Lock()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					s.err = err
				}
				s.mu.Unlock()
				return
			}
			s.text.Write(ev.GetOutput().GetData())
			if x := ev.GetExit(); x != nil {
				s.exit = x
			}
			s.mu.Unlock()
		}
	}()
	return s
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	deadline := time.Now().Add(patience(20 * time.Second))
	for !strings.Contains(s.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("the terminal does not show %q:\n%q", text, s.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *screen) ends(t *testing.T) *dsec.Result {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(patience(20 * time.Second)):
		t.Fatalf("it does not end; the terminal shows %q", s.String())
	}
	if s.exit == nil {
		t.Fatalf("it ended without a result: %v", s.err)
	}
	return s.exit
}

func TestTerminal(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	p, err := s.Start(t.Context(), dsec.Command{Argv: []string{"bash", "--norc", "-i"}, Env: map[string]string{"PS1": "ready> ", "TERM": "xterm-256color"},
		PTY: &dsec.Size{Rows: 30, Cols: 100}, StdinStream: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	scr, in := watch(p), p.Stdin(t.Context())
	typed := func(keys string) {
		t.Helper()
		if _, err := io.WriteString(in, keys); err != nil {
			t.Fatal(err)
		}
	}
	scr.shows(t, "ready>")
	typed("stty size; tty; tput setaf 1 | od -An -c | head -1\n")
	scr.shows(t, "30 100")
	scr.shows(t, "/dev/pts/")
	scr.shows(t, "033")
	if err := p.Resize(t.Context(), dsec.Size{Rows: 50, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	typed("stty size\n")
	scr.shows(t, "50 132")
	typed("sleep 1000\n")
	scr.shows(t, "sleep 1000")
	eventually(t, "sleep runs", func() bool {
		return stdout(mustRun(t, s, dsec.Command{Script: `cat /proc/[0-9]*/comm | grep -cx sleep`})) == "1\n"
	})
	typed("\x03")
	typed("echo status $?\n")
	scr.shows(t, "status 130")
	typed("exit 7\x089\n") // with line editing
	if r := scr.ends(t); r.GetExitCode() != 9 {
		t.Errorf("it ended with %d %s", r.GetExitCode(), r.GetSignal())
	}
}

func TestTerminalEndsByCtrlD(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	p, err := s.Start(t.Context(), dsec.Command{Argv: []string{"cat"}, PTY: &dsec.Size{Rows: 24, Cols: 80}, StdinStream: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	scr, in := watch(p), p.Stdin(t.Context())
	if _, err := io.WriteString(in, "a line\n\x04"); err != nil {
		t.Fatal(err)
	}
	if r := scr.ends(t); r.GetExitCode() != 0 || strings.Count(scr.String(), "a line") != 2 { // echo and cat
		t.Errorf("exit %d, shown %q", r.GetExitCode(), scr.String())
	}
}

// A client that was lost attaches again at the offset it had, and misses nothing.
func TestTerminalIsAttachedAgain(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	p, err := s.Start(ctx, dsec.Command{OpID: "term", Argv: []string{"bash", "--norc", "-i"}, Env: map[string]string{"PS1": "ready> "},
		PTY: &dsec.Size{Rows: 24, Cols: 80}, StdinStream: true})
	if err != nil {
		t.Fatal(err)
	}
	scr, in := watch(p), p.Stdin(t.Context())
	scr.shows(t, "ready>")
	if _, err := io.WriteString(in, "(sleep 0.5; echo mis''sed) & echo be''fore\n"); err != nil {
		t.Fatal(err)
	}
	scr.shows(t, "before")
	leave()
	<-scr.done
	seen := scr.String()
	time.Sleep(time.Second)
	again, err := s.Attach(t.Context(), "term", int64(len(seen)), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	rest := watch(again)
	rest.shows(t, "missed")
	if strings.Contains(rest.String(), "before") && !strings.Contains(seen, "before") {
		t.Errorf("seen %q, then %q", seen, rest.String())
	}
	if _, err := io.WriteString(in, "exit\n"); err != nil {
		t.Fatal(err)
	}
	rest.ends(t)
	whole, err := s.Attach(t.Context(), "term", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	all := watch(whole)
	all.ends(t)
	if all.String() != seen+rest.String() {
		t.Errorf("the two parts\n%q\n%q\nare not the whole\n%q", seen, rest.String(), all.String())
	}
}

func TestStdinIsStreamed(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{})
	p, err := s.Start(t.Context(), dsec.Command{Argv: []string{"sha256sum"}, StdinStream: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	in := p.Stdin(t.Context())
	if _, err := io.Copy(in, io.LimitReader(zeros{}, 10<<20)); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r, err := p.Wait(&out, nil)
	if err != nil || r.GetExitCode() != 0 || !strings.HasPrefix(out.String(), "e5b844cc57f57094ea4585e235f36c78c1cd222262bb89d53c94dcb4d6b3e55d") {
		t.Errorf("%v %v %q", err, r, out.String())
	}
}
