package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	spec := "session: {max_idle_seconds: 2, heartbeat_interval: 1}"
	idle := shared.session(t, dsec.CreateOptions{SpecYAML: spec})
	busy := shared.session(t, dsec.CreateOptions{SpecYAML: spec})
	beating := shared.session(t, dsec.CreateOptions{SpecYAML: spec})
	p, err := busy.Start(t.Context(), dsec.Command{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Close() // nobody is attached; the op alone keeps the session
	go func() { _ = beating.KeepAlive(t.Context(), 300*time.Millisecond) }()
	eventually(t, "the idle session ends", func() bool { phase, _ := phaseOf(t, idle); return phase == dsec.Completed })
	info, err := idle.Get(t.Context())
	if err != nil || !strings.Contains(info.GetReason(), "idle") || info.GetReclaim() != "acked" {
		t.Errorf("%v %v", info, err)
	}
	time.Sleep(3 * time.Second)
	for name, s := range map[string]*dsec.Session{"with a running op": busy, "with heartbeats": beating} {
		if phase, why := phaseOf(t, s); phase != dsec.Running {
			t.Errorf("the session %s is %s: %v", name, phase, why)
		}
	}
	if _, err := idle.Sh(t.Context(), "true"); !dsec.IsReason(err, "box_gone") {
		t.Errorf("an op on an ended session: %v", err)
	}
}

// Past its run time a session is in audit: nothing executes or changes any more, what it left can be read.
func TestAuditAfterMaxRuntime(t *testing.T) {
	t.Parallel()
	s := shared.session(t, dsec.CreateOptions{SpecYAML: "session: {max_runtime_seconds: 3}"})
	r, err := s.Run(t.Context(), dsec.Command{OpID: "long", Script: `echo evidence > /workspace/f; echo printed; (setsid sh -c 'while :; do echo x >> /workspace/alive; sleep 0.05; done' &); sleep 1000`})
	if err != nil {
		t.Fatal(err)
	}
	if stdout(r) != "printed\n" || r.GetExitCode() == 0 {
		t.Errorf("the running op ended with %v", r)
	}
	limit := func(what string, err error) {
		t.Helper()
		var e *dsec.Error
		if !errors.As(err, &e) || e.Class != dsec.ClassLimit || e.Reason != "timed_out" {
			t.Errorf("%s: %v", what, err)
		}
	}
	eventually(t, "ops are refused", func() bool { _, err := s.Sh(t.Context(), "true"); return err != nil })
	_, err = s.Sh(t.Context(), "true")
	limit("exec", err)
	_, err = s.WriteFile(t.Context(), "/workspace/f", strings.NewReader("forged"), dsec.WriteOptions{})
	limit("write", err)
	limit("remove", s.Remove(t.Context(), "/workspace/f", false))
	read := func(path string) string {
		t.Helper()
		rc, err := s.ReadFile(t.Context(), path, dsec.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer rc.Close()
		return readAll(t, rc)
	}
	if got := read("/workspace/f"); got != "evidence\n" {
		t.Errorf("the evidence is %q", got)
	}
	before := len(read("/workspace/alive"))
	time.Sleep(300 * time.Millisecond)
	if after := len(read("/workspace/alive")); after != before {
		t.Error("something runs on")
	}
	if op, err := s.Op(t.Context(), "long", true); err != nil || string(dsec.Output(op.GetResult().GetStdout())) != "printed\n" {
		t.Errorf("the op's output: %v %v", op, err)
	}
	if err := s.Stop(t.Context(), "seen enough"); err != nil {
		t.Fatal(err)
	}
	phase, why := phaseOf(t, s)
	if phase != dsec.Failed || why == nil || why.Class != dsec.ClassLimit {
		t.Errorf("it is %s: %v", phase, why)
	}
}
