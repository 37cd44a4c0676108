package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

func testProbe(t *testing.T, s *suite) {
	p := s.rt.Probe(s.ctx())
	if !p.OK {
		t.Fatalf("this machine cannot run it: %+v", p.Missing)
	}
	for _, f := range runtime.Features {
		if p.Features[f] == "" {
			t.Errorf("the probe does not answer for %q", f)
		}
	}
	for _, m := range p.Missing {
		if m.Reason == "" || m.Remedy == "" {
			t.Errorf("%s is missing without reason or remedy: %+v", m.Feature, m)
		}
	}
}

func testCreateExecDestroy(t *testing.T, s *suite) {
	b := s.create()
	g := s.guest(b)
	res := s.sh(g, "echo out; echo err >&2; exit 3")
	if string(res.Stdout.Head) != "out\n" || string(res.Stderr.Head) != "err\n" || res.ExitCode != 3 {
		t.Errorf("result %+v", res)
	}
	if closed(b.Done()) {
		t.Error("a live box is done")
	}
	s.destroy(b)
	if !closed(b.Done()) {
		t.Error("a destroyed box is not done")
	}
	eventually(t, "events are closed after done", func() bool { return closed(b.Events()) })
	if _, err := b.Dial(s.ctx()); err == nil {
		t.Error("a destroyed box takes connections")
	}
	if err := b.Freeze(s.ctx()); err == nil {
		t.Error("a destroyed box was frozen")
	}
	s.nothingLeft()
}

func testDestroyIsIdempotent(t *testing.T, s *suite) {
	b := s.create()
	s.background(s.guest(b), "sleep 1000")
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if err := b.Destroy(s.ctx()); err != nil {
				t.Errorf("destroy: %v", err)
			}
		})
	}
	wg.Wait()
	s.destroy(b)
	s.nothingLeft()
	// The same id may be used for a new box, and an old handle does not touch that.
	again, err := s.rt.Create(s.ctx(), runtime.Config{ID: b.ID(), Root: s.root, Claim: s.config().Claim})
	if err != nil {
		t.Fatalf("create with a used id: %v", err)
	}
	s.destroy(b)
	if got := s.out(s.guest(again), "echo alive"); got != "alive\n" {
		t.Errorf("got %q", got)
	}
	s.destroy(again)
}

func testDuplicateID(t *testing.T, s *suite) {
	b := s.create()
	c := s.config()
	c.ID = b.ID()
	if _, err := s.rt.Create(s.ctx(), c); err == nil {
		t.Error("two boxes have one id")
	}
	if got := s.out(s.guest(b), "echo alive"); got != "alive\n" {
		t.Errorf("the first box says %q", got)
	}
	s.destroy(b)
}

func testCancelledCreate(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.rt.Create(ctx, s.config()); err == nil {
		t.Error("a create with a dead context succeeded")
	}
	s.nothingLeft()
	for i := range 12 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*500*time.Microsecond)
		b, err := s.rt.Create(ctx, s.config())
		cancel()
		if err == nil {
			s.destroy(b)
		}
	}
	s.nothingLeft()
}

func testParallelCreates(t *testing.T, s *suite) {
	var wg sync.WaitGroup
	for range 20 {
		c := s.config()
		c.Env = append(c.Env, "ME="+c.ID)
		wg.Go(func() {
			b, err := s.rt.Create(s.ctx(), c)
			if err != nil {
				t.Errorf("create %s: %v", c.ID, err)
				return
			}
			if got := s.out(s.guest(b), "echo $ME"); got != c.ID+"\n" {
				t.Errorf("box %s says that it is %q", c.ID, got)
			}
			s.destroy(b)
		})
	}
	wg.Wait()
	s.nothingLeft()
}

func testOpenAfterRestart(t *testing.T, s *suite) {
	b := s.create()
	g := s.guest(b)
	id := s.background(g, "echo begun; exec sleep 1000")
	first := op()
	s.sh(g, "echo once", func(r *guestproto.ExecRequest) { r.OpID = first })
	rec := b.Record()
	if rec.ID != b.ID() || rec.Runtime != s.rt.Name() || !json.Valid(rec.Data) {
		t.Fatalf("record %+v", rec)
	}
	s.restart()

	b, err := s.rt.Open(s.ctx(), rec)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	g = s.guest(b)
	info, err := g.Get(s.ctx(), first)
	if err != nil || info.Running || info.Result == nil {
		t.Errorf("the op that had ended: %+v, %v", info, err)
	}
	info, err = g.Get(s.ctx(), id)
	if err != nil || !info.Running {
		t.Errorf("the op that ran: %+v, %v", info, err)
	}
	s.follow(g, id, "begun\n")
	if got := s.out(g, "echo $COLOUR"); got != "green\n" {
		t.Errorf("environment: %q", got)
	}
	s.destroy(b)
	s.nothingLeft()
	if _, err := s.rt.Open(s.ctx(), rec); !errors.Is(err, errdefs.ErrBoxGone) {
		t.Errorf("open of a destroyed box: %v, want box_gone", err)
	}
}

// follow attaches to a running op, expects its output so far, kills it and sees its end.
func (s *suite) follow(g guestclient.API, id guestproto.OpID, want string) {
	s.t.Helper()
	stream, err := g.Attach(s.ctx(), id, 0, 0)
	if err != nil {
		s.t.Fatalf("attach: %v", err)
	}
	defer stream.Close()
	got := ""
	for {
		e, err := stream.Recv()
		if err != nil {
			s.t.Fatalf("after %q: %v", got, err)
		}
		switch e.Kind {
		case guestproto.EventOutput:
			if got += string(e.Data); got == want {
				if err := g.Signal(s.ctx(), id, "SIGKILL", true); err != nil {
					s.t.Fatalf("signal: %v", err)
				}
			}
		case guestproto.EventExit:
			if got != want || e.Result.Signal != "SIGKILL" {
				s.t.Errorf("output %q, result %+v", got, e.Result)
			}
			return
		}
	}
}

func testOpenOfWhatIsGone(t *testing.T, s *suite) {
	b := s.create()
	rec := b.Record()
	s.destroy(b)
	s.restart()
	if _, err := s.rt.Open(s.ctx(), rec); !errors.Is(err, errdefs.ErrBoxGone) {
		t.Errorf("destroyed before: %v, want box_gone", err)
	}
	for _, data := range []string{``, `{}`, `null`, `"x"`, `{"v":9999}`} {
		if b, err := s.rt.Open(s.ctx(), runtime.Record{ID: "never", Runtime: s.rt.Name(), Data: json.RawMessage(data)}); err == nil {
			t.Errorf("record %q opened box %s", data, b.ID())
		}
	}
}

func testNewestConnection(t *testing.T, s *suite) {
	b := s.create()
	old := s.guest(b)
	for range 3 {
		g := s.guest(b)
		if got := s.out(g, "echo new"); got != "new\n" {
			t.Errorf("got %q", got)
		}
		eventually(t, "the older connection ends", func() bool { return closed(old.Done()) })
		old = g
	}
	s.destroy(b)
}

func testDeadGuest(t *testing.T, s *suite) {
	k, ok := s.rt.(Killer)
	if !ok {
		t.Skipf("runtime %s has no KillGuest", s.rt.Name())
	}
	b := s.create()
	g := s.guest(b)
	s.background(g, "sleep 1000")
	rec := b.Record()
	if err := k.KillGuest(b.ID()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("nobody noticed")
	}
	eventually(t, "events are closed after done", func() bool { return closed(b.Events()) })
	eventually(t, "the connection ends", func() bool { return closed(g.Done()) })
	if _, err := s.rt.Open(s.ctx(), rec); !errors.Is(err, errdefs.ErrBoxGone) {
		t.Errorf("open: %v, want box_gone", err)
	}
	s.destroy(b)
	s.nothingLeft()
}

func testSweep(t *testing.T, s *suite) {
	kept, stray := s.create(), s.create()
	for _, b := range []runtime.Box{kept, stray} {
		s.background(s.guest(b), "sleep 1000")
	}
	found, err := s.rt.Sweep(s.ctx(), func(id string) bool { return id == kept.ID() })
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Error("the stray box was not found")
	}
	for _, o := range found {
		if o.ID != stray.ID() || o.Err != nil || o.Kind == "" || o.What == "" {
			t.Errorf("found %+v", o)
		}
	}
	eventually(t, "the stray box is done", func() bool { return closed(stray.Done()) })
	if got := s.out(s.guest(kept), "echo alive"); got != "alive\n" {
		t.Errorf("the kept box says %q", got)
	}
	s.destroy(stray)

	// What a daemon left that died is found by the next one, which has no handle.
	rec := kept.Record()
	s.restart()
	if found, err = s.rt.Sweep(s.ctx(), func(string) bool { return false }); err != nil || len(found) == 0 {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err := s.rt.Open(s.ctx(), rec); !errors.Is(err, errdefs.ErrBoxGone) {
		t.Errorf("open after the sweep: %v", err)
	}
	s.nothingLeft()
}

// testSweepBesideCreates: patrols go on while boxes come and go. Nothing that is
// known is touched, and what its owner has just removed is no orphan.
func testSweepBesideCreates(t *testing.T, s *suite) {
	var mu sync.Mutex
	known := map[string]bool{}
	set := func(id string, on bool) {
		mu.Lock()
		defer mu.Unlock()
		known[id] = on
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c := s.config()
				set(c.ID, true)
				b, err := s.rt.Create(s.ctx(), c)
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				if conn, err := b.Dial(s.ctx()); err != nil {
					t.Errorf("dial: %v", err)
				} else {
					_ = conn.Close()
				}
				s.destroy(b)
				set(c.ID, false)
			}
		})
	}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		found, err := s.rt.Sweep(s.ctx(), func(id string) bool {
			mu.Lock()
			defer mu.Unlock()
			return known[id]
		})
		if err != nil {
			t.Errorf("sweep: %v", err)
		}
		for _, o := range found {
			t.Errorf("found %+v", o)
		}
	}
	close(stop)
	wg.Wait()
	s.nothingLeft()
}

func testSecrets(t *testing.T, s *suite) {
	const secret = "hunter2hunter2"
	b := s.create(func(c *runtime.Config) { c.Env = append(c.Env, "TOKEN="+secret) })
	if strings.Contains(fmt.Sprintf("%s", b.Record().Data), secret) {
		t.Error("the record has a secret")
	}
	if got := s.out(s.guest(b), "echo $TOKEN"); got != secret+"\n" {
		t.Errorf("the op has %q", got)
	}
	s.destroy(b)
}
