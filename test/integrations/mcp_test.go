package integrations

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// overStdio connects a client to a `dsec mcp` of its own.
func overStdio(t *testing.T, args ...string) (*mcp.ClientSession, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(binary(), append([]string{"mcp"}, args...)...)
	cmd.Env = environ()
	cmd.Stderr = t.Output()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &mcp.CommandTransport{Command: cmd, TerminateDuration: time.Minute}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, cmd
}

// answer is what the tools answer, all of them.
type answer struct {
	Error                          *struct{ Class, Reason, Remedy string }
	Session, Phase, Template, User string
	ExitCode                       *int `json:"exit_code"`
	Stdout, Stderr                 string
	TimedOut                       bool  `json:"timed_out"`
	Dropped                        int64 `json:"dropped_bytes"`
	Background                     int   `json:"background_processes"`
	Content, Encoding              string
	Bytes                          int64
	NextOffset                     int64 `json:"next_offset"`
	Sessions                       []struct{ Session string }
}

type args = map[string]any

func call(t *testing.T, s *mcp.ClientSession, tool string, a args) answer {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: a})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	raw, err := json.Marshal(r.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	var got answer
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatalf("%s answered %s: %v", tool, raw, err)
	}
	if r.IsError != (got.Error != nil) {
		t.Fatalf("%s answered isError=%v and %s", tool, r.IsError, raw)
	}
	// What hosts that read text only get is the same.
	if text, ok := r.Content[0].(*mcp.TextContent); !ok || !json.Valid([]byte(text.Text)) {
		t.Errorf("%s answered as text %v", tool, r.Content[0])
	}
	return got
}

func must(t *testing.T, s *mcp.ClientSession, tool string, a args) answer {
	t.Helper()
	got := call(t, s, tool, a)
	if got.Error != nil {
		t.Fatalf("%s %v: %+v", tool, a, *got.Error)
	}
	return got
}

func TestMCPToolsByStdio(t *testing.T) {
	s, _ := overStdio(t, "--mem", "128Mi", "-e", "FROM=operator")
	var names []string
	for tool, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
		if tool.Description == "" || tool.InputSchema == nil || tool.OutputSchema == nil {
			t.Errorf("%s is not described", tool.Name)
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "create exec list read stop write" {
		t.Errorf("tools: %s", got)
	}

	id := must(t, s, "create", args{"env": args{"BY": "agent"}}).Session
	if i, err := server.c.Session(id).Get(t.Context()); err != nil || i.GetSpec().GetMemLimit() != 128<<20 {
		t.Errorf("the operator's limit does not hold: %v, %v", i.GetSpec(), err)
	}
	if r := must(t, s, "exec", args{"session": id, "script": "echo $FROM $BY; echo oops >&2; exit 3"}); r.ExitCode == nil || *r.ExitCode != 3 || r.Stdout != "operator agent\n" || r.Stderr != "oops\n" {
		t.Errorf("exec: %+v", r)
	}
	if r := must(t, s, "exec", args{"session": id, "argv": []string{"cat"}, "stdin": "in\n"}); *r.ExitCode != 0 || r.Stdout != "in\n" {
		t.Errorf("stdin: %+v", r)
	}
	must(t, s, "exec", args{"session": id, "script": "cd /tmp; X=7", "shell": "main"})
	if r := must(t, s, "exec", args{"session": id, "script": "echo $PWD $X", "shell": "main"}); r.Stdout != "/tmp 7\n" {
		t.Errorf("a shell's state: %+v", r)
	}
	if r := must(t, s, "exec", args{"session": id, "script": "echo begun; sleep 1000", "timeout_seconds": 0.3}); !r.TimedOut || r.Stdout != "begun\n" {
		t.Errorf("time-out: %+v", r)
	}
	if r := must(t, s, "exec", args{"session": id, "script": "seq 100000"}); len(r.Stdout) > 40<<10 || r.Dropped == 0 || !strings.HasSuffix(r.Stdout, "100000\n") {
		t.Errorf("output is not capped: %d bytes, %d dropped", len(r.Stdout), r.Dropped)
	}
	if r := must(t, s, "exec", args{"session": id, "script": "sleep 1000 > /dev/null 2>&1 &"}); *r.ExitCode != 0 || r.Background != 1 {
		t.Errorf("background: %+v", r)
	}

	if r := must(t, s, "write", args{"session": id, "path": "new/dir/a.txt", "content": "añb"}); r.Bytes != 4 {
		t.Errorf("write: %+v", r)
	}
	must(t, s, "write", args{"session": id, "path": "new/dir/a.txt", "content": "\n", "append": true})
	if r := must(t, s, "read", args{"session": id, "path": "/workspace/new/dir/a.txt"}); r.Content != "añb\n" || r.Encoding != "utf-8" || r.NextOffset != 0 {
		t.Errorf("read: %+v", r)
	}
	if r := must(t, s, "read", args{"session": id, "path": "new/dir/a.txt", "length": 2}); r.Content != "a" || r.NextOffset != 1 {
		t.Errorf("a part that would end in a character: %+v", r)
	}
	binary := []byte{0, 0xff, 0xfe, 'x'}
	must(t, s, "write", args{"session": id, "path": "bin", "content": base64.StdEncoding.EncodeToString(binary), "encoding": "base64", "mode": "0755"})
	if r := must(t, s, "read", args{"session": id, "path": "bin"}); r.Encoding != "base64" || r.Content != base64.StdEncoding.EncodeToString(binary) {
		t.Errorf("bytes: %+v", r)
	}

	if r := must(t, s, "list", nil); len(r.Sessions) != 1 || r.Sessions[0].Session != id {
		t.Errorf("list: %+v", r)
	}
	if r := must(t, s, "stop", args{"session": id}); r.Phase != dsec.Completed {
		t.Errorf("stop: %+v", r)
	}
	if r := must(t, s, "list", nil); r.Sessions == nil || len(r.Sessions) != 0 {
		t.Errorf("list after the stop: %+v", r)
	}
}

// Errors say whose fault it was, those of the arguments too.
func TestMCPErrorsAreTyped(t *testing.T) {
	s, _ := overStdio(t, "--max-sessions", "1")
	id := must(t, s, "create", nil).Session
	for _, x := range []struct {
		tool          string
		a             args
		class, reason string
	}{
		{"create", nil, "limit", "quota_exceeded"},
		{"create", args{"memory": "much"}, "user", "invalid_argument"},
		{"exec", args{"session": id, "argv": []string{"no-such-program"}}, "user", "not_found"},
		{"exec", args{"session": id}, "user", "invalid_argument"},
		{"exec", args{"session": id, "script": "true", "unknown": 1}, "user", "invalid_argument"},
		{"exec", args{"session": "s0000000000000000000000000", "script": "true"}, "user", "not_found"},
		{"read", args{"session": id, "path": "/nope"}, "user", "not_found"},
		{"read", args{"session": id, "path": "/etc"}, "user", "invalid_argument"},
		{"write", args{"session": id, "path": "/etc/passwd", "content": "x"}, "user", "forbidden"},
		{"write", args{"session": id, "path": "x", "content": "?", "encoding": "base64"}, "user", "invalid_argument"},
	} {
		got := call(t, s, x.tool, x.a)
		if got.Error == nil || got.Error.Class != x.class || got.Error.Reason != x.reason || got.Error.Remedy == "" {
			t.Errorf("%s %v: %+v, want %s, %s and a remedy", x.tool, x.a, got.Error, x.class, x.reason)
		}
	}
}

// What a connection made ends with it, also what a call is just busy with.
func TestMCPConnectionEnds(t *testing.T) {
	s, cmd := overStdio(t)
	gone := must(t, s, "create", nil).Session
	kept := must(t, s, "create", args{"keep": true}).Session
	defer server.c.Session(kept).Stop(context.WithoutCancel(t.Context()), "end of the test")
	busy := make(chan error, 1)
	go func() {
		_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "exec", Arguments: args{"session": gone, "script": "sleep 1000", "timeout_seconds": 1000}})
		busy <- err
	}()
	eventually(t, "the command to run", func() bool { return running(t, gone) == 1 })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // this client's own end waits for its calls
		t.Fatal(err)
	}
	<-busy
	_ = s.Close()
	if got := phase(t, gone); got != dsec.Completed {
		t.Errorf("after the connection its session is %s", got)
	}
	if got := phase(t, kept); got != dsec.Running {
		t.Errorf("after the connection the kept session is %s", got)
	}
}

// The server ends the sessions of a `dsec mcp` that was killed, because a lease owns them.
func TestMCPKilled(t *testing.T) {
	s, cmd := overStdio(t)
	id := must(t, s, "create", nil).Session
	i, err := server.c.Session(id).Get(t.Context())
	if err != nil || i.GetLeaseId() == "" {
		t.Fatalf("the session has no owner: %v, %v", i, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	l, err := server.c.Leases.GetLease(t.Context(), &dsecv1.GetLeaseRequest{LeaseId: i.GetLeaseId()})
	if err != nil || l.GetLease().GetTtlMs() > 60_000 {
		t.Errorf("its owner: %v, %v", l, err)
	}
	// That the server keeps such promises is tested with the leases; here it would take a minute.
	if err := server.c.Session(id).Stop(t.Context(), "end of the test"); err != nil {
		t.Error(err)
	}
}

// running counts the operations that run in a session.
func running(t *testing.T, id string) int {
	t.Helper()
	i, err := server.c.Session(id).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return int(i.GetBox().GetRunningOps())
}

// A call that the client cancels leaves nothing running.
func TestMCPCancelKills(t *testing.T) {
	s, _ := overStdio(t)
	id := must(t, s, "create", nil).Session
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "exec", Arguments: args{"session": id, "script": "sleep 1000"}})
		done <- err
	}()
	eventually(t, "the command to run", func() bool { return running(t, id) == 1 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled call: %v", err)
	}
	eventually(t, "the command to be killed", func() bool { return running(t, id) == 0 })
	if r := must(t, s, "exec", args{"session": id, "script": "echo alive"}); r.Stdout != "alive\n" {
		t.Errorf("after the cancellation: %+v", r)
	}
}

// bearer adds a key to every request.
type bearer struct{ key string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if b.key != "" {
		r.Header.Set("Authorization", "Bearer "+b.key)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func TestMCPByHTTP(t *testing.T) {
	cmd := exec.Command(binary(), "mcp", "--listen", "127.0.0.1:0")
	cmd.Env = environ("DSEC_API_KEY=") // it has no rights of its own
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	line, err := bufio.NewReader(stderr).ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), "MCP at ")
	if err != nil || !ok {
		t.Fatalf("it said %q, %v", line, err)
	}
	connect := func(key string) (*mcp.ClientSession, error) {
		c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		return c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{key}}}, nil)
	}
	for _, key := range []string{"", "e2b_0000000000000000000000000000000000000000"} {
		if s, err := connect(key); err == nil {
			_ = s.Close()
			t.Errorf("a client with the key %q is let in", key)
		}
	}
	one, err := connect(server.key)
	if err != nil {
		t.Fatal(err)
	}
	two, err := connect(server.key)
	if err != nil {
		t.Fatal(err)
	}
	a, b := must(t, one, "create", nil).Session, must(t, two, "create", nil).Session
	if r := must(t, one, "exec", args{"session": a, "script": "echo hello"}); r.Stdout != "hello\n" {
		t.Errorf("exec: %+v", r)
	}
	if r := must(t, one, "list", nil); len(r.Sessions) != 1 {
		t.Errorf("a connection lists what another one made: %+v", r)
	}
	// The id of a connection is no right: the key of another project cannot use it.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":9,"method":"tools/list"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", one.ID())
	req.Header.Set("Authorization", "Bearer other")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("another's connection answers %s", resp.Status)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the closed connection's session to end", func() bool { return phase(t, a) == dsec.Completed })
	if got := phase(t, b); got != dsec.Running {
		t.Errorf("the other connection's session is %s", got)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := phase(t, b); got != dsec.Completed {
		t.Errorf("after the end of the server its session is %s", got)
	}
	_ = two.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
