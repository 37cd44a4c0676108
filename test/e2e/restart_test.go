package e2e

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func (e *env) again(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience(30*time.Second))
	defer cancel()
	if err := e.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

// A killed daemon finds a suspended session suspended, with its op still running.
func TestKilledWhileSuspended(t *testing.T) {
	e := startOwn(t, "--no-pool")
	s := e.session(t, dsec.CreateOptions{})
	p, err := s.Start(t.Context(), dsec.Command{OpID: "tick", Script: `while :; do echo tick; sleep 0.02; done`})
	if err != nil {
		t.Fatal(err)
	}
	watch(p).shows(t, "tick")
	if err := s.Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Close()
	cpu := func() float64 {
		insp, err := s.Inspect(t.Context())
		if err != nil || insp.GetBox().GetState() != "suspended" {
			t.Fatalf("%v %v", insp, err)
		}
		return insp.GetBox().GetUsage().GetCpuMs()
	}
	before := cpu()
	e.Kill()
	killSpawner(e.DataDir())
	e.again(t)
	if phase, why := phaseOf(t, s); phase != dsec.Suspended {
		t.Fatalf("it is %s: %v", phase, why)
	}
	time.Sleep(300 * time.Millisecond)
	if after := cpu(); after > before+2 {
		t.Errorf("it ran while it was suspended: %.1f ms of CPU, then %.1f", before, after)
	}
	op, err := s.Op(t.Context(), "tick", false) // which resumes
	if err != nil || !op.GetRunning() {
		t.Fatalf("%v %v", op, err)
	}
	again, err := s.Attach(t.Context(), "tick", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	watch(again).shows(t, strings.Repeat("tick\n", 3))
	if phase, _ := phaseOf(t, s); phase != dsec.Running {
		t.Errorf("after an op it is %s", phase)
	}
}

// A graceful stop lets ops go on, a restart adopts them, and `dsec down` leaves nothing.
func TestStopRestartDown(t *testing.T) {
	e := startOwn(t)
	s := e.session(t, dsec.CreateOptions{Secrets: map[string]string{"TOKEN": "restart-needle"}})
	other := e.session(t, dsec.CreateOptions{})
	p, err := s.Start(t.Context(), dsec.Command{OpID: "long", Script: `i=0; while [ $i -lt 100 ]; do echo line $i; i=$((i+1)); sleep 0.02; done; echo $TOKEN`})
	if err != nil {
		t.Fatal(err)
	}
	watch(p).shows(t, "line 3")
	if _, err := s.WriteFile(t.Context(), "/workspace/kept", strings.NewReader("kept"), dsec.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	mustRun(t, s, dsec.Command{ShellSession: "sh", Script: "cd /tmp; X=remembered"})
	start := time.Now()
	if err := e.Stop(); err != nil {
		t.Fatalf("graceful stop: %v\n%s", err, e.Log())
	}
	if d := time.Since(start); d > patience(20*time.Second) {
		t.Errorf("it took %v", d)
	}
	p.Close()
	e.again(t)
	op, err := s.Op(t.Context(), "long", true)
	if err != nil {
		t.Fatal(err)
	}
	out := string(dsec.Output(op.GetResult().GetStdout()))
	if strings.Count(out, "line ") != 100 || !strings.HasSuffix(out, "restart-needle\n") {
		t.Errorf("the op that went on printed %q", out)
	}
	rc, err := s.ReadFile(t.Context(), "/workspace/kept", dsec.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(rc); err != nil || !bytes.Equal(got, []byte("kept")) {
		t.Errorf("%q %v", got, err)
	}
	rc.Close()
	if r := mustRun(t, s, dsec.Command{ShellSession: "sh", Script: "echo $PWD $X $TOKEN"}); stdout(r) != "/tmp remembered restart-needle\n" {
		t.Errorf("the shell session: %q", stdout(r))
	}
	if f := grepTree(t, e.DataDir(), "restart-needle"); f != "" {
		t.Errorf("%s holds a secret", f)
	}
	// Down refuses while a server serves, and takes everything when none does.
	down := func() ([]byte, error) {
		return exec.Command(binary(), "down", "--data-dir", e.DataDir()).CombinedOutput()
	}
	if out, err := down(); err == nil {
		t.Errorf("down beside a server: %s", out)
	}
	e.Kill()
	if out, err := down(); err != nil {
		t.Fatalf("down: %v: %s", err, out)
	} else if !strings.Contains(string(out), "2 of sessions") || !strings.Contains(string(out), "; nothing is left") {
		t.Errorf("down does not say what it removed: %s", out)
	}
	if out, err := down(); err != nil || string(out) != "no box was there; nothing is left\n" {
		t.Errorf("a second down: %v %s", err, out)
	}
	if left := launch.Leftovers(e.DataDir(), native.CgroupName(e.DataDir())); len(left) > 0 {
		t.Errorf("left after down:\n%s", strings.Join(left, "\n"))
	}
	e.again(t)
	for _, s := range []*dsec.Session{s, other} {
		eventually(t, "sessions whose boxes are gone end", func() bool { phase, _ := phaseOf(t, s); return phase == dsec.Failed || phase == dsec.Completed })
	}
}

// A server whose sessions have ended leaves nothing of its own when it stops, the boxes that it had begun ahead among that.
func TestCleanStopLeavesNoBox(t *testing.T) {
	e := startOwn(t, "--no-pool")
	s := e.session(t, dsec.CreateOptions{})
	mustRun(t, s, dsec.Command{Argv: []string{"true"}})
	if err := s.Stop(t.Context(), "done"); err != nil {
		t.Fatal(err)
	}
	if err := e.Stop(); err != nil {
		t.Fatalf("%v\n%s", err, e.Log())
	}
	out, err := exec.Command(binary(), "down", "-o", "json", "--data-dir", e.DataDir()).CombinedOutput()
	if want := `{"removed":0,"sessions":0,"idle":0,"parts":0}` + "\n"; err != nil || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
	e.again(t)
}
