package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// awake is the number of sessions whose guests do not rest.
func (e *env) awake() int {
	n := 0
	for _, pid := range launch.Guests(e.DataDir(), native.CgroupName(e.DataDir())) {
		if threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)); err == nil && len(threads) > 1 {
			n++
		}
	}
	return n
}

// Sessions that nobody uses rest, and nobody who uses them again notices: not when everything of the platform was killed meanwhile,
// not when they were suspended.
func TestUnusedSessionsRest(t *testing.T) {
	e := startOwn(t, "--no-pool")
	const n = 8
	var boxes []*dsec.Session
	for i := range n {
		s := e.session(t, dsec.CreateOptions{Secrets: map[string]string{"TOKEN": fmt.Sprintf("s3-%d", i)}})
		boxes = append(boxes, s)
		if i == 0 {
			continue // has never been used
		}
		r, err := s.Run(t.Context(), dsec.Command{OpID: "first", Script: `echo "$TOKEN" | tee -a first`})
		if err != nil || stdout(r) != fmt.Sprintf("s3-%d\n", i) {
			t.Fatalf("%+v %v", r, err)
		}
	}
	if err := boxes[1].Suspend(t.Context()); err != nil { // before it rests
		t.Fatal(err)
	}
	eventually(t, "all at rest", func() bool { return e.awake() == 0 })
	if err := boxes[2].Suspend(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.Kill()
	killSpawner(e.DataDir())
	e.again(t)
	for i, s := range boxes {
		r, err := s.Run(t.Context(), dsec.Command{OpID: "first", Script: `echo "$TOKEN" | tee -a first`})
		if err != nil || stdout(r) != fmt.Sprintf("s3-%d\n", i) {
			t.Errorf("session %d: %+v %v", i, r, err)
		}
		r, err = s.Run(t.Context(), dsec.Command{Script: "cat first"})
		if err != nil || stdout(r) != fmt.Sprintf("s3-%d\n", i) {
			t.Errorf("session %d, once more: %+v %v", i, r, err)
		}
	}
	p, err := boxes[3].Start(t.Context(), dsec.Command{OpID: "bg", Argv: []string{"sleep", "3600"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	eventually(t, "all at rest but one", func() bool { return e.awake() == 1 })
	time.Sleep(100 * time.Millisecond)
	if op, err := boxes[3].Op(t.Context(), "bg", false); err != nil || !op.GetRunning() {
		t.Errorf("a running op: %v %v", op, err)
	}
}
