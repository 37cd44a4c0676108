// Package runtimetest is what every runtime.Runtime has to pass.
//
// It says nothing about how a box is isolated in detail (the attacks are each
// runtime's own tests), only what the node builds upon. A feature that a runtime
// lacks is skipped if its probe says so; a probe that does not answer fails.
package runtimetest

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// New makes a runtime on a data directory. It is called again on the same
// directory after Close, as a restarted daemon does. Its root must have a shell at /bin/sh and
// the usual small programs.
type New func(t *testing.T, dataDir string) (runtime.Runtime, runtime.Root)

// Killer is implemented by runtimes whose boxes can be ended from outside for a test.
type Killer interface {
	// KillGuest ends the box's PID 1, as the machine's OOM killer would.
	KillGuest(id string) error
}

// Run runs the whole suite.
func Run(t *testing.T, newRuntime New) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"Probe", testProbe},
		{"CreateExecDestroy", testCreateExecDestroy},
		{"DestroyIsIdempotent", testDestroyIsIdempotent},
		{"DuplicateID", testDuplicateID},
		{"CancelledCreate", testCancelledCreate},
		{"ParallelCreates", testParallelCreates},
		{"OpenAfterRestart", testOpenAfterRestart},
		{"OpenOfWhatIsGone", testOpenOfWhatIsGone},
		{"NewestConnectionWins", testNewestConnection},
		{"Prepare", testPrepare},
		{"PreparedGuestDies", testPreparedGuestDies},
		{"ColdConfig", testColdConfig},
		{"Claim", testClaim},
		{"SecretsStayOutOfTheRecord", testSecrets},
		{"Root", testRoot},
		{"Sizes", testSizes},
		{"Freeze", testFreeze},
		{"KillAgent", testKillAgent},
		{"MemoryLimit", testMemoryLimit},
		{"PidsLimit", testPidsLimit},
		{"SetLimits", testSetLimits},
		{"Usage", testUsage},
		{"DeadGuest", testDeadGuest},
		{"Sweep", testSweep},
		{"SweepBesideCreates", testSweepBesideCreates},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "dsec") // short: socket paths have 107 bytes
			if err != nil {
				t.Fatal(err)
			}
			s := &suite{t: t, dir: dir, make: newRuntime}
			s.start()
			t.Cleanup(s.finish)
			test.run(t, s)
		})
	}
}

// suite is one test's machine.
type suite struct {
	t    *testing.T
	dir  string
	make New
	rt   runtime.Runtime
	root runtime.Root
	seq  atomic.Int64
}

func (s *suite) start() {
	s.t.Helper()
	s.rt, s.root = s.make(s.t, s.dir)
}

// restart does what a new daemon does.
func (s *suite) restart() {
	s.t.Helper()
	if err := s.rt.Close(); err != nil {
		s.t.Fatalf("close: %v", err)
	}
	s.start()
}

// finish removes everything, and fails the test if the runtime cannot.
func (s *suite) finish() {
	if _, err := s.rt.Sweep(context.Background(), func(string) bool { return false }); err != nil {
		s.t.Errorf("sweep at the end: %v", err)
	}
	s.nothingLeft()
	if err := s.rt.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Errorf("the data directory cannot be removed: %v", err)
	}
}

// nothingLeft asserts that a sweep that keeps nothing finds nothing.
func (s *suite) nothingLeft() {
	s.t.Helper()
	left, err := s.rt.Sweep(context.Background(), func(string) bool { return false })
	if err != nil {
		s.t.Errorf("sweep: %v", err)
	}
	for _, o := range left {
		s.t.Errorf("left of box %q: %s %s (%v)", o.ID, o.Kind, o.What, o.Err)
	}
}

// need skips the test when boxes made here lack a feature, and says why.
func (s *suite) need(features ...string) {
	s.t.Helper()
	p := s.rt.Probe(s.ctx())
	for _, f := range features {
		if how := p.Features[f]; !p.Has(f) {
			s.t.Skipf("runtime %s here, feature %s: %s", s.rt.Name(), f, how)
		}
	}
}

func (s *suite) has(feature string) bool {
	p := s.rt.Probe(s.ctx())
	return p.Has(feature)
}

// ctx bounds everything that a test does.
func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	s.t.Cleanup(cancel)
	return ctx
}

// config of a small box.
func (s *suite) config() runtime.Config {
	return runtime.Config{
		ID: fmt.Sprintf("t%d", s.seq.Add(1)), Root: s.root,
		Claim: runtime.Claim{
			Limits:   runtime.Limits{Memory: 64 << 20, CPU: 1, Pids: 64},
			Hostname: "box", User: "user", WritableDirs: []string{"/workspace"},
			Store: "auto", StoreSize: 16 << 20, TmpSize: 8 << 20,
			Seccomp: runtime.Seccomp{Profile: "default"},
			Env:     []string{"COLOUR=green"},
		},
	}
}

func (s *suite) create(change ...func(*runtime.Config)) runtime.Box {
	s.t.Helper()
	c := s.config()
	for _, f := range change {
		f(&c)
	}
	b, err := s.rt.Create(s.ctx(), c)
	if err != nil {
		s.t.Fatalf("create: %v", err)
	}
	if b.ID() != c.ID {
		s.t.Errorf("box %s has id %s", c.ID, b.ID())
	}
	return b
}

func (s *suite) destroy(b runtime.Box) {
	s.t.Helper()
	if err := b.Destroy(s.ctx()); err != nil {
		s.t.Errorf("destroy %s: %v", b.ID(), err)
	}
}

// guest connects to the box; the connection is closed with the test.
func (s *suite) guest(b runtime.Box) guestclient.API {
	s.t.Helper()
	conn, err := b.Dial(s.ctx())
	if err != nil {
		s.t.Fatalf("dial %s: %v", b.ID(), err)
	}
	g, err := guestclient.New(s.ctx(), conn)
	if err != nil {
		s.t.Fatalf("guest of %s: %v", b.ID(), err)
	}
	s.t.Cleanup(func() { _ = g.Close() })
	return g
}

var ops atomic.Int64

// op gives an id that no op of this process had.
func op() guestproto.OpID { return fmt.Sprintf("op-%d", ops.Add(1)) }

// sh runs a script to its end.
func (s *suite) sh(g guestclient.API, script string, change ...func(*guestproto.ExecRequest)) *guestproto.Result {
	s.t.Helper()
	req := guestproto.ExecRequest{OpID: op(), Argv: []string{"/bin/sh", "-c", script}, TimeoutMs: 20_000}
	for _, f := range change {
		f(&req)
	}
	res, err := g.Run(s.ctx(), req)
	if err != nil {
		s.t.Fatalf("run %q: %v", script, err)
	}
	return res
}

// out runs a script that must succeed and gives its standard output.
func (s *suite) out(g guestclient.API, script string, change ...func(*guestproto.ExecRequest)) string {
	s.t.Helper()
	res := s.sh(g, script, change...)
	if res.ExitCode != 0 || res.Error != nil {
		s.t.Fatalf("%q ended with %d %s %+v: %s%s", script, res.ExitCode, res.Signal, res.Error, res.Stdout.Head, res.Stderr.Head)
	}
	return string(res.Stdout.Head) + string(res.Stdout.Tail)
}

// background starts a script and returns when it runs.
func (s *suite) background(g guestclient.API, script string) guestproto.OpID {
	s.t.Helper()
	id := op()
	if _, err := g.Run(s.ctx(), guestproto.ExecRequest{OpID: id, Argv: []string{"/bin/sh", "-c", script}, Background: true}); err != nil {
		s.t.Fatalf("start %q: %v", script, err)
	}
	return id
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func closed[T any](c <-chan T) bool {
	select {
	case _, ok := <-c:
		return !ok
	default:
		return false
	}
}
