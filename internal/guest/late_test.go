package guest

import (
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// A command whose time runs out before it has been started is ended all the same.
func TestTimeOutDuringTheStart(t *testing.T) {
	set := &setup.Settings{AgentCgroup: -1, AgentMemory: -1, AgentPids: -1}
	s := NewServer(Options{Settings: func() *setup.Settings { return set }})
	t.Cleanup(s.Close)
	for range gateWidth {
		defer s.gate.enter()() // starts wait
	}
	o, err := s.begin(&guestproto.ExecOpen{Req: guestproto.ExecRequest{OpID: "late", Script: "sleep 60", TimeoutMs: int64(gatePatience.Milliseconds() / 5)}})
	if err != nil {
		t.Fatal(err)
	}
	defer o.drop()
	select {
	case <-o.done:
	case <-time.After(20 * time.Second):
		o.kill()
		t.Fatal("it runs on")
	}
	if r := o.result; !r.TimedOut || r.Signal != "SIGKILL" || r.Survivors != 0 {
		t.Errorf("%+v", r)
	}
}
