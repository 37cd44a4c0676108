package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guest"
	"github.com/dsec-platform/dsec/internal/guest/files"
	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a guest in this process.
type box struct {
	t      testing.TB
	srv    *guest.Server
	served chan struct{} // closed when the connection of the last dial has been served
}

func newBox(t testing.TB) *box {
	t.Helper()
	set := &setup.Settings{AgentCgroup: -1, AgentMemory: -1, AgentPids: -1, Env: []string{"BOX=yes"}}
	if dir := leafRoot(t); dir >= 0 {
		set.AgentCgroup = dir
	}
	w := files.New()
	srv := guest.NewServer(guest.Options{
		Settings: func() *setup.Settings { return set },
		Files: func(rw io.ReadWriteCloser) {
			if c, err := mux.NewConn(rw, mux.Config{Accept: w.Serve}); err == nil {
				_ = c.Serve()
			}
		},
	})
	t.Cleanup(func() {
		srv.Close()
		w.Close()
	})
	return &box{t: t, srv: srv}
}

// leafRoot makes a cgroup2 directory for op leaves where the machine lets us.
func leafRoot(t testing.TB) int {
	base := "/sys/fs/cgroup/unified"
	if _, err := os.Stat(base); err != nil {
		base = "/sys/fs/cgroup"
	}
	dir := base + "/dsec-guesttest-" + fmt.Sprint(os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return -1
	}
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	t.Cleanup(func() {
		unix.Close(fd)
		ents, _ := os.ReadDir(dir)
		for _, e := range ents {
			if e.IsDir() {
				if err := os.Remove(dir + "/" + e.Name()); err != nil {
					t.Error(err)
				}
			}
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) { // of two boxes in a test
			t.Error(err)
		}
	})
	return fd
}

// dial makes a new connection to the guest.
func (b *box) dial() *guestclient.Client {
	b.t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	f := os.NewFile(uintptr(p[0]), "")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	b.served = done
	go func() {
		_ = b.srv.Serve(os.NewFile(uintptr(p[1]), "control"))
		close(done)
	}()
	c, err := guestclient.New(b.t.Context(), conn)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		c.Close()
		<-done
		<-c.Done()
	})
	return c
}

func client(t testing.TB) *guestclient.Client { return newBox(t).dial() }

// soon is the context of what has to end: a test that hangs says where.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// slow is a time in milliseconds, longer where the machine is emulated.
func slow(ms int64) int64 {
	factor, err := strconv.ParseInt(os.Getenv("DSEC_TEST_SLOW"), 10, 64)
	if err != nil {
		factor = 1
	}
	return ms * factor
}

func sh(script string) guestproto.ExecRequest { return guestproto.ExecRequest{Script: script} }

func run(t testing.TB, c guestclient.API, r guestproto.ExecRequest) *guestproto.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	res, err := c.Run(ctx, r)
	if err != nil {
		t.Fatalf("run %q: %v", r.Script, err)
	}
	return res
}

func wantError(t testing.TB, err error, class errdefs.Class, reason errdefs.Reason, object string) {
	t.Helper()
	e, ok := errors.AsType[*errdefs.Error](err)
	if !ok || e.Class != class || e.Reason != reason || !strings.Contains(e.Object, object) {
		t.Errorf("got %v (%+v), want %s %s about %q", err, e, class, reason, object)
	}
}

func TestRun(t *testing.T) {
	c := client(t)
	tests := map[string]struct {
		req              guestproto.ExecRequest
		out, err, signal string
		code             int
	}{
		"argv":         {req: guestproto.ExecRequest{Argv: []string{"echo", "a b"}}, out: "a b\n"},
		"streams":      {req: sh("echo o; echo e >&2; exit 3"), out: "o\n", err: "e\n", code: 3},
		"no stdin":     {req: sh("cat; echo done"), out: "done\n"},
		"stdin":        {req: guestproto.ExecRequest{Script: "cat", StdinMode: guestproto.StdinData, Stdin: []byte("in\x00put")}, out: "in\x00put"},
		"env":          {req: guestproto.ExecRequest{Script: "echo $BOX $A; A=2", Env: []string{"A=1", "A=3"}}, out: "yes 3\n"},
		"cwd":          {req: guestproto.ExecRequest{Script: "pwd", Cwd: "/usr/bin"}, out: "/usr/bin\n"},
		"signal":       {req: sh("kill -TERM $$; sleep 9"), code: -1, signal: "SIGTERM"},
		"heredoc":      {req: sh("cat <<'X'\n$a \"b\" 'c'\nX\n"), out: "$a \"b\" 'c'\n"},
		"binary":       {req: sh(`printf '\000\377\n\001'`), out: "\x00\xff\n\x01"},
		"non-UTF-8":    {req: guestproto.ExecRequest{Argv: []string{"printf", "%s", "\xff\xfe"}}, out: "\xff\xfe"},
		"sh":           {req: guestproto.ExecRequest{Script: "echo $0", Shell: "/bin/sh"}, out: "sh\n"},
		"long script":  {req: sh("echo " + strings.Repeat("x", 200<<10) + " | wc -c"), out: "204801\n"},
		"many args":    {req: guestproto.ExecRequest{Argv: append([]string{"sh", "-c", "echo $#", "sh"}, strings.Split(strings.Repeat("abc ", 50000), " ")...)}, out: "50001\n"},
		"big stdin":    {req: guestproto.ExecRequest{Script: "wc -c", StdinMode: guestproto.StdinData, Stdin: make([]byte, 1<<20)}, out: "1048576\n"},
		"unread stdin": {req: guestproto.ExecRequest{Script: "exit 4", StdinMode: guestproto.StdinData, Stdin: make([]byte, 1<<20)}, code: 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := run(t, c, tt.req)
			if string(r.Stdout.Head) != tt.out || string(r.Stderr.Head) != tt.err || r.ExitCode != tt.code || r.Signal != tt.signal {
				t.Errorf("got %q, %q, code %d, signal %q", r.Stdout.Head, r.Stderr.Head, r.ExitCode, r.Signal)
			}
			if r.WallMs <= 0 || r.PeakMemory <= 0 {
				t.Errorf("usage is missing: %+v", r)
			}
		})
	}
}

func TestStartFailures(t *testing.T) {
	c := client(t)
	tests := map[string]struct {
		req    guestproto.ExecRequest
		reason errdefs.Reason
		object string
	}{
		"program":  {guestproto.ExecRequest{Argv: []string{"no-such-program"}}, errdefs.NotFound, "program no-such-program"},
		"path":     {guestproto.ExecRequest{Argv: []string{"/no/such"}}, errdefs.NotFound, "program /no/such"},
		"mode":     {guestproto.ExecRequest{Argv: []string{"/etc/passwd"}}, errdefs.Forbidden, "program /etc/passwd"},
		"cwd":      {guestproto.ExecRequest{Script: "true", Cwd: "/no/such"}, errdefs.NotFound, "cwd /no/such"},
		"not dir":  {guestproto.ExecRequest{Script: "true", Cwd: "/etc/passwd"}, errdefs.InvalidArgument, "cwd /etc/passwd"},
		"relative": {guestproto.ExecRequest{Script: "true", Cwd: "x"}, errdefs.InvalidArgument, "cwd"},
		"shell":    {guestproto.ExecRequest{Script: "true", Shell: "/bin/nosh"}, errdefs.NotFound, "program /bin/nosh"},
		"neither":  {guestproto.ExecRequest{}, errdefs.InvalidArgument, "argv"},
		"both":     {guestproto.ExecRequest{Script: "x", Argv: []string{"x"}}, errdefs.InvalidArgument, "argv"},
		"op id":    {guestproto.ExecRequest{OpID: "a/b", Script: "x"}, errdefs.InvalidArgument, "op_id"},
		"env":      {guestproto.ExecRequest{Script: "x", Env: []string{"=x"}}, errdefs.InvalidArgument, "env"},
		"NUL":      {guestproto.ExecRequest{Argv: []string{"echo", "a\x00b"}}, errdefs.InvalidArgument, "request"},
		"arg size": {guestproto.ExecRequest{Argv: []string{"echo", strings.Repeat("x", 200<<10)}}, errdefs.TooLarge, "program echo"},
	}
	if os.Geteuid() == 0 {
		tests["user"] = struct {
			req    guestproto.ExecRequest
			reason errdefs.Reason
			object string
		}{guestproto.ExecRequest{Script: "true", User: "nosuchuser"}, errdefs.NotFound, "user nosuchuser"}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := c.Run(soon(t), tt.req)
			wantError(t, err, errdefs.User, tt.reason, tt.object)
		})
	}
}

func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change users")
	}
	r := run(t, client(t), guestproto.ExecRequest{Script: "id -u; echo $HOME; echo x > /dev/stderr", User: "1000"})
	if string(r.Stdout.Head) != "1000\n/\n" && !strings.HasPrefix(string(r.Stdout.Head), "1000\n/home") || string(r.Stderr.Head) != "x\n" {
		t.Errorf("got %q %q", r.Stdout.Head, r.Stderr.Head)
	}
}

func TestTimeoutKillsTree(t *testing.T) {
	c := client(t)
	start := time.Now()
	r := run(t, c, guestproto.ExecRequest{Script: `echo before; sleep 98.7 & setsid sleep 98.7 & nohup sleep 98.7 >/dev/null 2>&1 & (sleep 98.7 &) ; sleep 98.7`, TimeoutMs: slow(300)})
	if !r.TimedOut || string(r.Stdout.Head) != "before\n" || r.Signal != "SIGKILL" || r.OOM {
		t.Errorf("got %+v", r)
	}
	if d := time.Since(start); d.Milliseconds() > slow(5000) {
		t.Errorf("took %v", d)
	}
	if leafRootAvailable() {
		out := run(t, c, sh(`grep -al '^sleep.98.7' /proc/[0-9]*/cmdline 2>/dev/null`))
		if len(out.Stdout.Head) > 0 {
			t.Errorf("still running: %s", out.Stdout.Head)
		}
	}
}

func leafRootAvailable() bool { return os.Geteuid() == 0 }

func TestBackgroundHoldsPipe(t *testing.T) {
	c := client(t)
	start := time.Now()
	r := run(t, c, guestproto.ExecRequest{OpID: "bg1", Script: "echo one; (sleep 0.4; echo two; sleep 60) & exit 5"})
	if time.Since(start) > 350*time.Millisecond && time.Since(start) > 10*time.Second || r.ExitCode != 5 || string(r.Stdout.Head) != "one\n" || r.Survivors == 0 {
		t.Fatalf("after %v: %+v", time.Since(start), r)
	}
	info, err := c.Get(soon(t), "bg1")
	if err != nil || info.Survivors == 0 || info.Running {
		t.Fatalf("%+v, %v", info, err)
	}
	// Its later output is readable.
	deadline := time.Now().Add(5 * time.Second)
	for {
		out := follow(t, c, "bg1", 4)
		if out == "two\n" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("later output: %q", out)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := c.Signal(soon(t), "bg1", "SIGKILL", true); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if info, err = c.Get(soon(t), "bg1"); err != nil || info.Survivors == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil || info.Survivors != 0 {
		t.Fatalf("%+v, %v", info, err)
	}
}

// follow attaches at an offset of stdout and gives what comes until the exit event.
func follow(t *testing.T, c guestclient.API, op string, offset int64) string {
	t.Helper()
	s, err := c.Attach(soon(t), op, offset, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var b bytes.Buffer
	for {
		ev, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case guestproto.EventOutput:
			if ev.Stream == guestproto.Stdout {
				b.Write(ev.Data)
			}
		case guestproto.EventExit:
			return b.String()
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	c := client(t)
	r := run(t, c, guestproto.ExecRequest{Script: "yes 0123456 | head -c 3000000; echo end", MaxOutput: 100 << 10})
	o := r.Stdout
	if len(o.Head) != 50<<10 || len(o.Tail) != 50<<10 || o.Total != 3000004 || !bytes.HasSuffix(o.Tail, []byte("end\n")) {
		t.Errorf("head %d tail %d dropped %d total %d", len(o.Head), len(o.Tail), o.Dropped, o.Total)
	}
	r = run(t, c, guestproto.ExecRequest{Script: "yes", MaxOutput: 100 << 10, KillOnOutputLimit: true})
	if r.Limit != guestproto.LimitOutput || r.Signal != "SIGKILL" {
		t.Errorf("got %+v", r.Limit)
	}
	r = run(t, c, guestproto.ExecRequest{Script: "yes", TimeoutMs: slow(300), MaxOutput: 64 << 10})
	if !r.TimedOut || r.Stdout.Dropped == 0 || len(r.Stdout.Head) != 32<<10 {
		t.Errorf("got timed out %v, head %d, dropped %d", r.TimedOut, len(r.Stdout.Head), r.Stdout.Dropped)
	}
}

func TestExactlyOnce(t *testing.T) {
	c := client(t)
	dir := t.TempDir()
	req := guestproto.ExecRequest{OpID: "once", Script: "echo x >> " + dir + "/f; sleep 0.1; cat " + dir + "/f"}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if r := run(t, c, req); string(r.Stdout.Head) != "x\n" {
				t.Errorf("got %q", r.Stdout.Head)
			}
		})
	}
	wg.Wait()
	other := req
	other.Script = "true"
	_, err := c.Run(soon(t), other)
	wantError(t, err, errdefs.User, errdefs.IdempotencyClash, "op once")
	_, err = c.Get(soon(t), "never")
	wantError(t, err, errdefs.User, errdefs.OpUnknown, "op never")
}

func TestLostConnection(t *testing.T) {
	b := newBox(t)
	c := b.dial()
	s, err := c.Start(soon(t), guestproto.ExecRequest{OpID: "long", Script: "echo a; sleep 0.3; echo b"})
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := s.Recv(); err != nil || ev.Kind != guestproto.EventStarted {
		t.Fatalf("%+v, %v", ev, err)
	}
	d := b.dial() // replaces c
	<-c.Done()
	if _, err := s.Recv(); err == nil {
		if _, err = s.Recv(); err == nil {
			t.Error("the old stream lives on")
		}
	}
	_, err = c.Run(soon(t), sh("true"))
	wantError(t, err, errdefs.Policy, errdefs.BoxTampered, "")
	if out := follow(t, d, "long", 2); out != "b\n" {
		t.Errorf("got %q", out)
	}
	if out := follow(t, d, "long", 0); out != "a\nb\n" {
		t.Errorf("got %q", out)
	}
}

func TestStreamedStdin(t *testing.T) {
	c := client(t)
	s, err := c.Start(soon(t), guestproto.ExecRequest{OpID: "in", Script: "cat; echo end", StdinMode: guestproto.StdinStream})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if ev, err := s.Recv(); err != nil || ev.Kind != guestproto.EventStarted {
		t.Fatalf("%+v %v", ev, err)
	}
	next, err := c.WriteStdin(soon(t), "in", 0, []byte("hello "), false)
	if err != nil || next != 6 {
		t.Fatalf("%d %v", next, err)
	}
	next, err = c.WriteStdin(soon(t), "in", 3, []byte("lo world\n"), true) // a retry that overlaps
	if err != nil || next != 12 {
		t.Fatalf("%d %v", next, err)
	}
	if out := follow(t, c, "in", 0); out != "hello world\nend\n" {
		t.Errorf("got %q", out)
	}
	_, err = c.WriteStdin(soon(t), "in", 12, []byte("x"), false)
	wantError(t, err, errdefs.User, errdefs.Conflict, "stdin")
}

func TestPTY(t *testing.T) {
	c := client(t)
	ctx := soon(t)
	req := guestproto.ExecRequest{OpID: "tty", Argv: []string{"bash", "--norc"}, Env: []string{"PS1=ready: "}, PTY: true, Rows: 30, Cols: 100}
	s, err := c.Start(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var seen string // that no wait has been for yet
	waitFor := func(want string) {
		t.Helper()
		for !strings.Contains(seen, want) {
			ev, err := s.Recv()
			if err != nil || ev.Kind == guestproto.EventExit {
				t.Fatalf("waiting for %q: %v %+v after %q", want, err, ev, seen)
			}
			seen += string(ev.Data)
		}
		_, seen, _ = strings.Cut(seen, want)
	}
	var off int64
	// send types when the shell has shown its prompt: what comes earlier meets a terminal whose modes are
	// about to change, where a Ctrl-D becomes a NUL.
	send := func(text string) {
		t.Helper()
		if off, err = c.WriteStdin(ctx, "tty", off, []byte(text), false); err != nil {
			t.Fatal(err)
		}
	}
	waitFor("ready: ")
	send("stty size\n")
	waitFor("30 100")
	waitFor("ready: ")
	if err := c.Resize(ctx, "tty", 40, 120); err != nil {
		t.Fatal(err)
	}
	send("stty size\n")
	waitFor("40 120")
	waitFor("ready: ")
	send("sh -c 'echo g$((0+1)); exec sleep 99'\n") // says so itself when it is what Ctrl-C reaches
	waitFor("g1")
	send("\x03")
	waitFor("^C")
	waitFor("ready: ")
	send("echo ctrl$((1+1))\n")
	waitFor("ctrl2")
	waitFor("ready: ")
	send("\x04")
	for {
		ev, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == guestproto.EventExit {
			break
		}
	}
}

func TestDial(t *testing.T) {
	c := client(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn)
		conn.Close()
	}()
	conn, err := c.Dial(soon(t), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	data := bytes.Repeat([]byte("x"), 1<<20)
	go func() {
		_, _ = conn.Write(data)
		_ = conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err != nil || len(got) != len(data) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	_, err = c.Dial(soon(t), "tcp", "127.0.0.1:1")
	wantError(t, err, errdefs.User, errdefs.Unavailable, "127.0.0.1:1")
	_, err = c.Dial(soon(t), "udp", "127.0.0.1:1")
	wantError(t, err, errdefs.User, errdefs.InvalidArgument, "udp")
}

func TestDialDeadline(t *testing.T) {
	c := client(t)
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := c.Dial(soon(t), "unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestSlowFollower: a live reader that lags gets every byte; one that stops gets a gap.
func TestSlowFollower(t *testing.T) {
	c := client(t)
	s, err := c.Start(soon(t), guestproto.ExecRequest{OpID: "slowly", Script: "head -c 3000000 /dev/zero", MaxOutput: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for {
		ev, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Kind == guestproto.EventGap {
			t.Fatalf("a live reader lost %d bytes at %d", ev.Dropped, ev.Offset)
		}
		n += int64(len(ev.Data))
		if ev.Kind == guestproto.EventExit {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	if n != 3000000 {
		t.Errorf("got %d bytes", n)
	}
	stopped, err := c.Start(soon(t), guestproto.ExecRequest{OpID: "stops", Script: "head -c 3000000 /dev/zero", MaxOutput: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	for range 400 {
		if info, err := c.Get(soon(t), "stops"); err != nil || !info.Running {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	var gap int64
	for {
		ev, err := stopped.Recv()
		if err != nil {
			t.Fatal(err)
		}
		gap += ev.Dropped
		if ev.Kind == guestproto.EventExit {
			break
		}
	}
	if gap == 0 {
		t.Error("the command waited for a reader that had stopped, or output was kept without bound")
	}
}

// TestOutputBudget: many large outputs do not grow the guest without bound.
func TestOutputBudget(t *testing.T) {
	c := client(t)
	for i := range 12 {
		r := run(t, c, guestproto.ExecRequest{OpID: fmt.Sprint("big", i), Script: "head -c 9000000 /dev/zero", MaxOutput: 8 << 20})
		if r.Stdout.Total != 9000000 || r.ExitCode != 0 {
			t.Fatalf("total %d", r.Stdout.Total)
		}
	}
	_, err := c.Get(soon(t), "big0")
	wantError(t, err, errdefs.User, errdefs.OpUnknown, "op big0")
	_, err = c.Run(soon(t), guestproto.ExecRequest{OpID: "big0", Script: "head -c 9000000 /dev/zero", MaxOutput: 8 << 20})
	wantError(t, err, errdefs.User, errdefs.OpUnknown, "op big0")
}

func TestList(t *testing.T) {
	c := client(t)
	run(t, c, guestproto.ExecRequest{OpID: "l1", Argv: []string{"echo", "x"}})
	if _, err := c.Run(soon(t), guestproto.ExecRequest{OpID: "l2", Script: "sleep 60", Background: true}); err != nil {
		t.Fatal(err)
	}
	list, err := c.List(soon(t))
	if err != nil || len(list) != 2 || list[0].OpID != "l1" || list[0].Running || list[0].Result == nil || !list[1].Running || list[1].Pid == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := c.Signal(soon(t), "l2", "TERM", false); err != nil {
		t.Fatal(err)
	}
	r := run(t, c, guestproto.ExecRequest{OpID: "l2", Script: "sleep 60", Background: true})
	for range 200 {
		if r.Signal != "" {
			break
		}
		time.Sleep(10 * time.Millisecond)
		r = run(t, c, guestproto.ExecRequest{OpID: "l2", Script: "sleep 60", Background: true})
	}
	if r.Signal != "SIGTERM" {
		t.Errorf("%+v", r)
	}
	wantError(t, c.Signal(soon(t), "l2", "TERM", false), errdefs.User, errdefs.Conflict, "op l2")
	wantError(t, c.Signal(soon(t), "l2", "SIGNONE", false), errdefs.User, errdefs.InvalidArgument, "SIGNONE")
}

func TestManyOps(t *testing.T) {
	c := client(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 10 {
				if r := run(t, c, sh("echo hi")); string(r.Stdout.Head) != "hi\n" {
					t.Errorf("got %q", r.Stdout.Head)
				}
			}
		})
	}
	wg.Wait()
}

// More ops than are kept end together: each caller still gets its op's output.
func TestResultsAreKeptForThoseWhoWait(t *testing.T) {
	c := client(t)
	var wg sync.WaitGroup
	for i := range 700 {
		wg.Go(func() {
			id := fmt.Sprint("wait", i)
			r, err := c.Run(soon(t), guestproto.ExecRequest{OpID: id, Argv: []string{"echo", id}})
			if err != nil || string(r.Stdout.Head) != id+"\n" || r.Stdout.Dropped != 0 {
				t.Errorf("%s: %v, %+v", id, err, r)
			}
		})
	}
	wg.Wait()
}

func TestContextEndsRun(t *testing.T) {
	c := client(t)
	ctx, cancel := context.WithTimeout(soon(t), 100*time.Millisecond)
	defer cancel()
	_, err := c.Run(ctx, guestproto.ExecRequest{OpID: "slow", Script: "sleep 20"})
	wantError(t, err, errdefs.User, errdefs.TimedOut, "")
	info, err := c.Get(soon(t), "slow")
	if err != nil || !info.Running {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestFilesThroughGuest(t *testing.T) {
	c := client(t)
	dir := t.TempDir()
	o := guestclient.WriteOptions{OpID: "w1", Path: dir + "/f", Size: -1}
	for range 2 { // the repetition gets the recorded answer
		info, err := c.WriteFile(soon(t), o, strings.NewReader("data"))
		if err != nil || info.Size != 4 {
			t.Fatalf("%+v, %v", info, err)
		}
	}
	_, r, err := c.ReadFile(soon(t), dir+"/f", "", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	r.Close()
	if err != nil || string(got) != "data" {
		t.Fatalf("%q, %v", got, err)
	}
	_, err = c.Stat(soon(t), dir+"/none", false)
	wantError(t, err, errdefs.User, errdefs.NotFound, "")
}

func BenchmarkTrue(b *testing.B) {
	c := client(b)
	for b.Loop() {
		if _, err := c.Run(context.Background(), guestproto.ExecRequest{Argv: []string{"/bin/true"}}); err != nil {
			b.Fatal(err)
		}
	}
}
