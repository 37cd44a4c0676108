package runtimetest

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

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
