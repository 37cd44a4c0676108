package runtimetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
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

func testSecrets(t *testing.T, s *suite) {
	const secret = "hunter2hunter2"
	b := s.create(func(c *runtime.Config) { c.Env = append(c.Env, "TOKEN="+secret) })
	if strings.Contains(string(b.Record().Data), secret) {
		t.Error("the record has a secret")
	}
	if got := s.out(s.guest(b), "echo $TOKEN"); got != secret+"\n" {
		t.Errorf("the op has %q", got)
	}
	s.destroy(b)
}
