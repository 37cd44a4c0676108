package guest_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// reborn ends the client's connection and gives one to a guest that has taken over what the first has kept.
func (b *box) reborn(c *guestclient.Client) *guestclient.Client {
	b.t.Helper()
	c.Close()
	state, fds := b.keep()
	next := newBox(b.t)
	got, err := next.srv.Restore(state)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(got) != len(fds) {
		b.t.Errorf("descriptors %v, then %v", fds, got)
	}
	return next.dial()
}

// keep waits until nothing goes on any more.
func (b *box) keep() (state []byte, fds []int) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if state, fds, ok := b.srv.Keep(); ok {
			return state, fds
		}
	}
	b.t.Fatal("it does not come to rest")
	return nil, nil
}

func TestStateOutlivesTheGuest(t *testing.T) {
	b := newBox(t)
	c := b.dial()
	ctx := soon(t)
	req := func(id, script string) guestproto.ExecRequest {
		return guestproto.ExecRequest{OpID: id, Script: script, Env: []string{"A=b"}}
	}
	plain := req("plain", "echo out; echo err >&2; exit 3")
	want := run(t, c, plain)
	long := req("long", "seq 1 20000; printf end")
	long.MaxOutput = 4 << 10
	wantLong := run(t, c, long)
	killed := req("killed", "kill -9 $$")
	run(t, c, killed)
	broken := guestproto.ExecRequest{OpID: "broken", Argv: []string{"/no/such"}}
	_, wantErr := c.Run(ctx, broken)
	shell := req("shell", "V='a b'; f() { echo \"f $V\"; }; cd /")
	shell.ShellSession = "s"
	run(t, c, shell)
	fed := req("fed", "cat")
	fed.StdinMode = guestproto.StdinStream
	fed.Background = true
	if _, err := c.Run(ctx, fed); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteStdin(ctx, "fed", 0, []byte("hello"), true); err != nil {
		t.Fatal(err)
	}
	ended(t, c, "fed")
	path := t.TempDir() + "/f"
	if _, err := c.WriteFile(ctx, guestclient.WriteOptions{OpID: "file", Path: path, Size: 1}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	boot := c.Hello().BootID

	c = b.reborn(c)
	if got := c.Hello().BootID; got != boot {
		t.Errorf("boot id %s, then %s", boot, got)
	}
	list, err := c.List(ctx)
	if err != nil || len(list) != 6 {
		t.Fatalf("%d ops, %v", len(list), err)
	}
	for i, id := range []string{"plain", "long", "killed", "broken", "shell", "fed"} {
		if list[i].OpID != id || list[i].Running || list[i].Pid == 0 && id != "broken" {
			t.Errorf("op %d: %+v", i, list[i])
		}
	}
	// Whoever sends a request again gets its answer again, and nothing runs twice.
	if got := run(t, c, plain); got.ExitCode != 3 || !bytes.Equal(got.Stdout.Head, want.Stdout.Head) || !bytes.Equal(got.Stderr.Head, want.Stderr.Head) || got.WallMs != want.WallMs {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := run(t, c, long); !bytes.Equal(got.Stdout.Head, wantLong.Stdout.Head) || !bytes.Equal(got.Stdout.Tail, wantLong.Stdout.Tail) || got.Stdout.Dropped != wantLong.Stdout.Dropped {
		t.Errorf("got %+v, want %+v", got.Stdout, wantLong.Stdout)
	}
	if got := run(t, c, killed); got.Signal != "SIGKILL" {
		t.Errorf("got %+v", got)
	}
	if _, err := c.Run(ctx, broken); err == nil || err.Error() != wantErr.Error() {
		t.Errorf("got %v, want %v", err, wantErr)
	}
	_, err = c.Run(ctx, req("plain", "another"))
	wantError(t, err, errdefs.User, errdefs.IdempotencyClash, "plain")
	if next, err := c.WriteStdin(ctx, "fed", 0, []byte("hello"), true); err != nil || next != 5 {
		t.Errorf("input that was taken before: %d, %v", next, err)
	}
	_, err = c.WriteStdin(ctx, "fed", 5, []byte("more"), false)
	wantError(t, err, errdefs.User, errdefs.Conflict, "stdin")
	wantError(t, c.Signal(ctx, "plain", "TERM", true), errdefs.User, errdefs.Conflict, "plain")
	more := req("", "f; pwd")
	more.ShellSession = "s"
	if got := run(t, c, more); string(got.Stdout.Head) != "f a b\n/\n" {
		t.Errorf("the shell session: %q %q", got.Stdout.Head, got.Stderr.Head)
	}
	_, err = c.WriteFile(ctx, guestclient.WriteOptions{OpID: "file", Path: path + "2", Size: 1}, strings.NewReader("x"))
	wantError(t, err, errdefs.User, errdefs.IdempotencyClash, "file")
}

func TestEvictedOpsStayKnown(t *testing.T) {
	b := newBox(t)
	c := b.dial()
	const kept = 512
	for i := range kept + 3 {
		run(t, c, guestproto.ExecRequest{OpID: opID(i), Argv: []string{"true"}})
	}
	c = b.reborn(c)
	for i := range 3 {
		_, err := c.Run(soon(t), guestproto.ExecRequest{OpID: opID(i), Argv: []string{"true"}})
		wantError(t, err, errdefs.User, errdefs.OpUnknown, opID(i))
	}
	if _, err := c.Get(soon(t), opID(3)); err != nil {
		t.Error(err)
	}
}

func opID(i int) string {
	return "op-" + string(rune('a'+i/26%26)) + string(rune('a'+i%26)) + string(rune('a'+i/676))
}

// A guest that anybody needs has no state to leave.
func TestBusyGuestKeepsNothing(t *testing.T) {
	b := newBox(t)
	c := b.dial()
	if err := c.Ping(soon(t)); err != nil { // the hello comes a little before the connection counts
		t.Fatal(err)
	}
	if _, _, ok := b.srv.Keep(); ok {
		t.Error("somebody is connected")
	}
	if _, err := c.Run(soon(t), guestproto.ExecRequest{OpID: "bg", Script: "sleep 60 & exec >&- 2>&-", Background: true}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	time.Sleep(100 * time.Millisecond)
	if _, _, ok := b.srv.Keep(); ok {
		t.Error("a process of an op lives")
	}
	c = b.dial()
	if err := c.Signal(soon(t), "bg", "KILL", true); err != nil {
		t.Fatal(err)
	}
	ended(t, c, "bg")
	c.Close()
	b.keep()
}

// ended waits until nothing of an op lives.
func ended(t *testing.T, c *guestclient.Client, op string) {
	t.Helper()
	for ctx := soon(t); ; {
		info, err := c.Get(ctx, op)
		if err != nil {
			t.Fatal(err)
		}
		if !info.Running && info.Survivors == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A guest with much to keep stays awake, and answers as before.
func TestMuchOutputKeepsAwake(t *testing.T) {
	b := newBox(t)
	c := b.dial()
	big := guestproto.ExecRequest{OpID: "big", Script: "head -c 3000000 /dev/zero", MaxOutput: 4 << 20}
	if r := run(t, c, big); r.Stdout.Total != 3000000 {
		t.Fatalf("%+v", r)
	}
	c.Close()
	time.Sleep(100 * time.Millisecond)
	if state, _, ok := b.srv.Keep(); ok {
		t.Errorf("%d bytes are kept", len(state))
	}
	if r := run(t, b.dial(), big); r.Stdout.Total != 3000000 || r.Stdout.Dropped != 0 {
		t.Errorf("%+v", r)
	}
}
