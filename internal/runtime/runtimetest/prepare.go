package runtimetest

import (
	"testing"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// preparer gives the suite's runtime as one that begins boxes ahead.
func (s *suite) preparer() runtime.Preparer {
	s.t.Helper()
	p, ok := s.rt.(runtime.Preparer)
	if !ok {
		s.t.Skipf("runtime %s begins no box ahead", s.rt.Name())
	}
	return p
}

func (s *suite) prepare(id string) {
	s.t.Helper()
	if err := s.preparer().Prepare(s.ctx(), id); err != nil {
		s.t.Fatalf("prepare %s: %v", id, err)
	}
}

// works asserts that the box is what s.config asks for.
func (s *suite) works(b runtime.Box) {
	s.t.Helper()
	script, want := "echo $COLOUR", "green\n"
	for feature, more := range map[string][2]string{
		runtime.FeatureRoot:  {"cat /proc/sys/kernel/hostname", "box"},
		runtime.FeatureUsers: {"id -un", "user"},
		runtime.FeatureDirs:  {"touch /workspace/f && echo written", "written"},
	} {
		if s.has(feature) {
			script, want = script+"; "+more[0], want+more[1]+"\n"
		}
	}
	if res := s.sh(s.guest(b), script); string(res.Stdout.Head) != want {
		s.t.Errorf("in the box: %q, %q; want %q", res.Stdout.Head, res.Stderr.Head, want)
	}
	u, err := b.Usage(s.ctx())
	if err != nil || u.MemoryLimit != s.config().Limits.Memory {
		s.t.Errorf("memory limit %d, %v", u.MemoryLimit, err)
	}
}

func testPrepare(t *testing.T, s *suite) {
	s.prepare("t1")
	b := s.create()
	s.works(b)
	s.destroy(b)
	s.nothingLeft()

	// What nobody asked for is removed by a sweep, and does not outlive the daemon.
	s.prepare("unused")
	if found, err := s.rt.Sweep(s.ctx(), func(id string) bool { return id == "unused" }); err != nil || len(found) > 0 {
		t.Errorf("a sweep that keeps it found %v, %v", found, err)
	}
	// It is no orphan that anybody has to be told of.
	if found, err := s.rt.Sweep(s.ctx(), func(string) bool { return false }); err != nil || len(found) > 0 {
		t.Errorf("a sweep that does not keep it found %v, %v", found, err)
	}
	s.nothingLeft()
	s.prepare("orphaned")
	s.restart()
	if _, err := s.rt.Sweep(s.ctx(), func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	s.nothingLeft()
}

// testPreparedGuestDies: a create goes on without what has ended.
func testPreparedGuestDies(t *testing.T, s *suite) {
	k, ok := s.rt.(Killer)
	if !ok {
		t.Skipf("runtime %s has no KillGuest", s.rt.Name())
	}
	s.prepare("t1")
	if err := k.KillGuest("t1"); err != nil {
		t.Fatal(err)
	}
	b := s.create()
	s.works(b)
	s.destroy(b)
	s.nothingLeft()
}
