package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestRun(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	r, err := s.Run(t.Context(), dsec.Command{Argv: []string{"sh", "-c", "printf '\\000\\377'; cat; echo $X >&2"}, Stdin: []byte("in"), Env: map[string]string{"X": "y", "A": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := dsec.Output(r.GetStdout()); !bytes.Equal(got, []byte("\x00\xffin")) || string(dsec.Output(r.GetStderr())) != "y\n" || r.GetExitCode() != 0 {
		t.Errorf("%q %v", got, r)
	}
	r, err = s.Run(t.Context(), dsec.Command{Argv: []string{"sleep", "9"}, Timeout: 50 * time.Millisecond})
	if err != nil || !r.GetTimedOut() || r.GetSignal() != "SIGKILL" {
		t.Error(r, err)
	}
	var e *dsec.Error
	if _, err = s.Run(t.Context(), dsec.Command{Argv: []string{"/nope"}}); !errors.As(err, &e) || e.Class != dsec.ClassUser || e.Remedy == "" {
		t.Error(err)
	}
}

func TestArgumentsAreBytes(t *testing.T) {
	w := newWorld(t)
	r, err := w.session().Run(t.Context(), dsec.Command{Argv: []string{"printf", "%s", "\xff\xfe"}, Env: map[string]string{"B": "\xff"}})
	if err != nil || string(dsec.Output(r.GetStdout())) != "\xff\xfe" {
		t.Error(r, err)
	}
}

func TestSameOpIDRunsOnce(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	cmd := dsec.Command{OpID: "one", Script: "echo x >> " + t.TempDir() + "/f; wc -l < $OLDPWD/f 2>/dev/null; date +%N"}
	first, err := s.Run(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	second, err := s.Run(t.Context(), cmd)
	if err != nil || !bytes.Equal(first.GetStdout().GetHead(), second.GetStdout().GetHead()) {
		t.Error("it ran again:", second, err)
	}
	cmd.Script = "echo other"
	if _, err := s.Run(t.Context(), cmd); !dsec.IsReason(err, "idempotency_clash") {
		t.Error(err)
	}
}

// A lost client detaches; the operation goes on and its result is fetched by id.
func TestLostRunGoesOn(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, dsec.Command{OpID: "long", Script: "sleep 0.4; echo done"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	op, err := s.Op(t.Context(), "long", true)
	if err != nil || string(dsec.Output(op.GetResult().GetStdout())) != "done\n" {
		t.Error(op, err)
	}
}

func TestServerChoosesOpID(t *testing.T) {
	w := newWorld(t)
	code, h, body := w.curl("POST", "/dsec.v1.ExecService/Run", `{"session_id":"`+w.session().ID()+`","command":{"argv":["true"]}}`)
	if id := h.Get("Dsec-Op-Id"); code != 200 || id == "" || !strings.Contains(body, id) {
		t.Error(code, h, body)
	}
}

func TestStream(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	p, err := s.Start(t.Context(), dsec.Command{Script: "echo a; read x; echo $x >&2; exit 4", StdinStream: true})
	if err != nil {
		t.Fatal(err)
	}
	ev, err := p.Recv()
	if err != nil || ev.GetStarted().GetPid() == 0 || ev.GetStarted().GetOpId() != p.OpID() {
		t.Fatal(ev, err)
	}
	in := p.Stdin(t.Context())
	if _, err := in.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	r, err := p.Wait(&out, &errs)
	if err != nil || out.String() != "a\n" || errs.String() != "hello\n" || r.GetExitCode() != 4 {
		t.Error(out.String(), errs.String(), r, err)
	}
	if _, err := p.Recv(); err != io.EOF {
		t.Error("after the exit:", err)
	}
	late, err := s.Attach(t.Context(), p.OpID(), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if _, err := late.Wait(&out, nil); err != nil || out.String() != "\n" {
		t.Errorf("attached from 1: %q, %v", out.String(), err)
	}
	if err := s.Signal(t.Context(), "nope", "term", false); !dsec.IsReason(err, "op_unknown") {
		t.Error(err)
	}
}

// A stream whose connection breaks attaches again and misses nothing.
func TestStreamSurvivesItsConnection(t *testing.T) {
	w := newWorld(t)
	id := w.session().ID()
	cut := newCutter(t, strings.TrimPrefix(w.url, "http://"))
	s := w.client(dsec.Options{URL: "http://" + cut.addr}).Session(id)
	p, err := s.Start(t.Context(), dsec.Command{Script: "for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done"})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(150*time.Millisecond, cut.cut)
	time.AfterFunc(350*time.Millisecond, cut.cut)
	var out bytes.Buffer
	if _, err := p.Wait(&out, nil); err != nil || out.String() != "1\n2\n3\n4\n5\n6\n" {
		t.Errorf("%q %v", out.String(), err)
	}
	if cut.cuts() < 2 {
		t.Error("the connection was not cut")
	}
}

// cutter is a proxy whose connections can be cut.
type cutter struct {
	addr string
	mu   sync.Mutex
	live []net.Conn
	n    int
}

func newCutter(t *testing.T, to string) *cutter {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{addr: ln.Addr().String()}
	t.Cleanup(func() { ln.Close(); c.cut() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			c.mu.Lock()
			c.live = append(c.live, in, out)
			c.mu.Unlock()
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	return c
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.live {
		x.Close()
	}
	if len(c.live) > 0 {
		c.n++
	}
	c.live = nil
}

func (c *cutter) cuts() int { c.mu.Lock(); defer c.mu.Unlock(); return c.n }

func TestPanicsAreInfrastructure(t *testing.T) {
	w := newWorld(t)
	var e *dsec.Error
	_, err := w.session().Sh(t.Context(), "panic")
	if !errors.As(err, &e) || e.Class != dsec.ClassInfrastructure || strings.Contains(e.Error(), "told to") {
		t.Error(err)
	}
	if !strings.Contains(w.logs.String(), "handler panicked") {
		t.Error("the log does not say so")
	}
	if _, _, m := w.curl("GET", "/metrics", ""); !strings.Contains(m, "dsec_panics_total 1") {
		t.Error("the metrics do not say so")
	}
}

func TestConcurrentRuns(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if r, err := s.Sh(t.Context(), "echo x"); err != nil || string(dsec.Output(r.GetStdout())) != "x\n" {
				t.Error(r, err)
			}
		})
	}
	wg.Wait()
}

// Two thousand callers at once, each with its own connection, none refused.
func TestTwoThousandCallers(t *testing.T) {
	if testing.Short() {
		t.Skip("short: opens 4,000 sockets")
	}
	w := newWorld(t)
	s := w.client(dsec.Options{}).Session(w.session().ID())
	if _, err := s.Run(t.Context(), dsec.Command{OpID: "slow", Argv: []string{"sleep", "1"}, Background: true}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 2000 {
		wg.Go(func() {
			// All wait for one operation, so that all are there at the same time.
			if op, err := s.Op(t.Context(), "slow", true); err != nil || op.GetResult() == nil {
				t.Error(op, err)
			}
		})
	}
	wg.Wait()
}
