package guest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// TestHoldOutput: with HoldOutput a command waits for its follower longer than for any other, and
// goes on when the follower has gone.
func TestHoldOutput(t *testing.T) {
	c := client(t)
	const size = 3_000_000
	req := guestproto.ExecRequest{OpID: "held", Script: "head -c 3000000 /dev/zero", MaxOutput: 64 << 10, HoldOutput: true}
	s, err := c.Start(soon(t), req)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2500 * time.Millisecond)
	if info, err := c.Get(soon(t), "held"); err != nil || !info.Running {
		t.Fatalf("it did not wait: %+v %v", info, err)
	}
	n := 0
	for {
		ev, err := s.Recv()
		if err != nil || ev.Kind == guestproto.EventGap {
			t.Fatalf("%+v %v after %d bytes", ev, err, n)
		}
		n += len(ev.Data)
		if ev.Kind == guestproto.EventExit {
			break
		}
	}
	if n != size {
		t.Errorf("got %d bytes", n)
	}
	req.OpID = "left"
	if s, err = c.Start(soon(t), req); err != nil {
		t.Fatal(err)
	}
	s.Close()
	req.Script, req.OpID = "", "left"
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if info, err := c.Get(soon(t), "left"); err == nil && !info.Running {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a command waits for a follower that has gone")
		}
	}
}

// TestAttachFromNow: what was written before is not told again.
func TestAttachFromNow(t *testing.T) {
	c := client(t)
	started, err := c.Start(soon(t), guestproto.ExecRequest{OpID: "op", Script: "echo before; read x; echo after", StdinMode: guestproto.StdinStream})
	if err != nil {
		t.Fatal(err)
	}
	defer started.Close()
	for {
		ev, err := started.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == guestproto.EventOutput {
			break
		}
	}
	s, err := c.Attach(soon(t), "op", guestproto.FromNow, guestproto.FromNow)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if ev, err := s.Recv(); err != nil || ev.Kind != guestproto.EventStarted {
		t.Fatalf("%+v %v", ev, err)
	}
	if _, err := c.WriteStdin(soon(t), "op", 0, []byte("go\n"), false); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for {
		ev, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		got.Write(ev.Data)
		if ev.Kind == guestproto.EventExit {
			break
		}
	}
	if got.String() != "after\n" {
		t.Errorf("got %q", got.String())
	}
}

// TestNoteAndHome: a note is told while its op runs; ~ is the user's home.
func TestNoteAndHome(t *testing.T) {
	c := client(t)
	s, err := c.Start(soon(t), guestproto.ExecRequest{OpID: "op", Script: "read x", StdinMode: guestproto.StdinStream, Note: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if info, err := c.Get(soon(t), "op"); err != nil || info.Note != "mine" {
		t.Errorf("%+v %v", info, err)
	}
	if _, err := c.WriteStdin(soon(t), "op", 0, nil, true); err != nil {
		t.Fatal(err)
	}
	run(t, c, guestproto.ExecRequest{OpID: "op", Script: "read x", StdinMode: guestproto.StdinStream, Note: "mine"})
	if info, err := c.Get(soon(t), "op"); err != nil || info.Note != "" {
		t.Errorf("%+v %v", info, err)
	}
	if r := run(t, c, guestproto.ExecRequest{Script: `[ "$PWD" -ef "$HOME" ] && echo home`, Cwd: "~"}); string(r.Stdout.Head) != "home\n" {
		t.Errorf("%+v", r)
	}
	_, err = c.Run(soon(t), guestproto.ExecRequest{Script: "true", Cwd: "~/no such directory"})
	wantError(t, err, errdefs.User, errdefs.NotFound, "cwd")
}
