package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	pb "github.com/dsec-platform/dsec/gen/filesystem"
	"github.com/dsec-platform/dsec/gen/filesystem/filesystemconnect"
	"github.com/dsec-platform/dsec/gen/process"
	"github.com/dsec-platform/dsec/gen/process/processconnect"
)

// sandbox is a session as E2B's SDKs see it, spoken to without one. The SDKs have a suite of their own, test/e2b.
type sandbox struct {
	e       *env
	ID      string `json:"sandboxID"`
	Token   string `json:"envdAccessToken"`
	Traffic string `json:"trafficAccessToken"`
	Domain  string `json:"domain"`
	calls   *connect.Client
}

// http sends a request of the control API.
func (e *env) http(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	key, err := e.Key()
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, e.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	return answer(t, req)
}

func answer(t *testing.T, req *http.Request) (int, string) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func (e *env) sandbox(t *testing.T, template, fields string) *sandbox {
	t.Helper()
	status, text := e.http(t, "POST", "/sandboxes", `{"templateID":"`+template+`","timeout":600`+fields+`}`)
	s := &sandbox{e: e}
	if err := json.Unmarshal([]byte(text), s); status != 201 || err != nil {
		t.Fatalf("create: %d %s", status, text)
	}
	s.calls = connect.NewClient(connecthttp.NewTransport(http.DefaultClient, e.URL(), connecthttp.WithProtoJSON()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience(time.Minute))
		defer cancel()
		if err := e.c.Session(s.ID).Stop(ctx, "end of the test"); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return s
}

// call is the context of an RPC to the agent.
func (s *sandbox) call(t *testing.T, headers ...string) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience(time.Minute))
	t.Cleanup(cancel)
	ctx, info := connect.NewClientContext(ctx)
	h := info.RequestHeader()
	h.Set("E2b-Sandbox-Id", s.ID)
	h.Set("E2b-Sandbox-Port", "49983")
	h.Set("X-Access-Token", s.Token)
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return ctx
}

func (s *sandbox) processes() processconnect.ProcessClient {
	return processconnect.NewProcessClient(s.calls)
}

func script(text string, tag string) *process.StartRequest {
	q := &process.StartRequest{Process: &process.ProcessConfig{Cmd: "/bin/bash", Args: []string{"-l", "-c", text}}}
	if tag != "" {
		q.Tag = &tag
	}
	return q
}

// start starts a process and gives its pid.
func (s *sandbox) start(t *testing.T, q *process.StartRequest) (processconnect.ProcessStartClientStream, uint32) {
	t.Helper()
	st, err := s.processes().Start(s.call(t), q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	m, err := st.Receive()
	if err != nil || m.GetEvent().GetStart().GetPid() == 0 {
		t.Fatalf("%v %v", m, err)
	}
	return st, m.GetEvent().GetStart().GetPid()
}

// run runs a command to its end and gives its output.
func (s *sandbox) run(t *testing.T, text string) string {
	t.Helper()
	st, _ := s.start(t, script(text, ""))
	var out bytes.Buffer
	for {
		m, err := st.Receive()
		if err != nil {
			t.Fatalf("%v after %q", err, out.String())
		}
		out.Write(m.GetEvent().GetData().GetStdout())
		if m.GetEvent().GetEnd() != nil {
			return out.String()
		}
	}
}

func (s *sandbox) port(t *testing.T, port int, path string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.e.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = fmt.Sprintf("%d-%s.%s", port, s.ID, s.Domain)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return answer(t, req)
}

// A process outlives the server that started it, and is found again by its tag.
func TestE2BProcessOutlivesServer(t *testing.T) {
	e := startOwn(t, "--no-pool")
	s := e.sandbox(t, "base", "")
	st, pid := s.start(t, script("id -un; read a; echo got $a; exit 6", "worker"))
	if m, err := st.Receive(); err != nil || string(m.GetEvent().GetData().GetStdout()) != "user\n" {
		t.Fatalf("%v %v", m, err)
	}
	e.Kill()
	e.again(t)
	s.calls = connect.NewClient(connecthttp.NewTransport(http.DefaultClient, e.URL(), connecthttp.WithProtoJSON()))
	sel := &process.ProcessSelector{Selector: &process.ProcessSelector_Tag{Tag: "worker"}}
	back, err := s.processes().Connect(s.call(t), &process.ConnectRequest{Process: sel})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if m, err := back.Receive(); err != nil || m.GetEvent().GetStart().GetPid() != pid {
		t.Fatalf("%v %v", m, err)
	}
	in := &process.ProcessInput{Input: &process.ProcessInput_Stdin{Stdin: []byte("it\n")}}
	if _, err := s.processes().SendInput(s.call(t), &process.SendInputRequest{Process: sel, Input: in}); err != nil {
		t.Fatal(err)
	}
	if m, err := back.Receive(); err != nil || string(m.GetEvent().GetData().GetStdout()) != "got it\n" {
		t.Fatalf("%v %v", m, err)
	}
	if m, err := back.Receive(); err != nil || m.GetEvent().GetEnd().GetExitCode() != 6 {
		t.Fatalf("%v %v", m, err)
	}
}

// One sandbox's token opens no other, whatever a request says; and a file is its user's.
func TestE2BTokensAndOwners(t *testing.T) {
	s, other := shared.sandbox(t, shared.debian(t), ""), shared.sandbox(t, "base", "")
	for _, token := range []string{other.Token, s.Traffic, s.ID + ".", ""} {
		_, err := s.processes().List(s.call(t, "X-Access-Token", token), &process.ListRequest{})
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("token %q: %v", token, err)
		}
	}
	put := func(path, user string) (int, string) {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", shared.URL()+"/files?path="+path+"&username="+user, strings.NewReader("text"))
		for k, v := range map[string]string{"E2b-Sandbox-Id": s.ID, "X-Access-Token": s.Token, "Content-Type": "application/octet-stream"} {
			req.Header.Set(k, v)
		}
		return answer(t, req)
	}
	for _, f := range [][2]string{{"dir/a", "user"}, {"/srv/new/b", "user"}, {"dir/c", "root"}} {
		if status, text := put(f[0], f[1]); status != 200 {
			t.Errorf("%v: %d %s", f, status, text)
		}
	}
	if got := s.run(t, "stat -c '%n %U' dir/a /srv/new /srv/new/b; sudo -n true 2>/dev/null; id -u"); got != "dir/a user\n/srv/new user\n/srv/new/b user\n1000\n" {
		t.Errorf("%q", got)
	}
	fs := filesystemconnect.NewFilesystemClient(s.calls)
	st, err := fs.Stat(s.call(t, "Authorization", "Basic cm9vdDo="), &pb.StatRequest{Path: "dir/c"})
	if err != nil || st.GetEntry().GetPath() != "/root/dir/c" || st.GetEntry().GetOwner() != "root" {
		t.Errorf("%v %v", st, err)
	}
	// Writing does not reach around the disk's limit or the box's own rules: the kernel decides.
	if status, text := put("/proc/version", "root"); status < 400 || status >= 500 {
		t.Errorf("%d %s", status, text)
	}
}

const echoServer = `import socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", 8000)); s.listen(9); print("ready", flush=True)
while True:
    c, _ = s.accept(); head = b""
    while b"\r\n\r\n" not in head:
        head += c.recv(4096)
    if b"pgrade: websocket" in head:
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        while (d := c.recv(4096)):
            c.sendall(d.upper())
    else:
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(head) + head)
    c.close()
`

// The ports of a box are reached by host name and by header, with the traffic token or when public.
func TestE2BPorts(t *testing.T) {
	s := shared.sandbox(t, shared.debian(t), `,"network":{"allowPublicTraffic":false}`)
	public := shared.sandbox(t, shared.debian(t), `,"network":{"allowPublicTraffic":true}`)
	if s.Domain == "" || s.Traffic == "" || public.Traffic != "" {
		t.Fatalf("%+v %+v", s, public)
	}
	for _, b := range []*sandbox{s, public} {
		st, _ := b.start(t, &process.StartRequest{Process: &process.ProcessConfig{Cmd: "python3", Args: []string{"-c", echoServer}}})
		if m, err := st.Receive(); err != nil || string(m.GetEvent().GetData().GetStdout()) != "ready\n" {
			t.Fatalf("%v %v", m, err)
		}
	}
	key, err := shared.Key()
	if err != nil {
		t.Fatal(err)
	}
	if status, text := s.port(t, 8000, "/x"); status != 403 {
		t.Errorf("without a token: %d %s", status, text)
	}
	if status, text := public.port(t, 8000, "/x"); status != 200 || !strings.HasPrefix(text, "GET /x HTTP/1.1") {
		t.Errorf("%d %s", status, text)
	}
	status, text := s.port(t, 8000, "/sandboxes", "E2b-Traffic-Access-Token", s.Traffic, "X-Api-Key", key, "Authorization", "Bearer "+key)
	if status != 200 || strings.Contains(text, key) || strings.Contains(text, s.Traffic) {
		t.Errorf("the box learns what opens it: %d %s", status, text)
	}
	if status, text = s.port(t, 8001, "/", "E2b-Traffic-Access-Token", s.Traffic); status != 502 || !strings.Contains(text, "port is not open") {
		t.Errorf("%d %s", status, text)
	}
	if status, text = s.port(t, 8000, "/", "E2b-Traffic-Access-Token", "wrong"); status != 403 {
		t.Errorf("%d %s", status, text)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(shared.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience(30 * time.Second)))
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 8000\r\nX-Access-Token: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", s.ID, s.Token)
	r := bufio.NewReader(c)
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%v %v", res, err)
	}
	fmt.Fprint(c, "hello\n")
	if line, err := r.ReadString('\n'); line != "HELLO\n" || err != nil {
		t.Errorf("%q %v", line, err)
	}
	// Paused, it is not found; connected, it goes on.
	if status, text := shared.http(t, "POST", "/sandboxes/"+public.ID+"/pause", "{}"); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := public.port(t, 8000, "/"); status != 502 || !strings.Contains(text, "was not found") {
		t.Errorf("%d %s", status, text)
	}
	if _, err := public.processes().List(public.call(t), &process.ListRequest{}); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "was not found") {
		t.Errorf("%v", err)
	}
	if status, text := shared.http(t, "POST", "/sandboxes/"+public.ID+"/connect", `{"timeout":600}`); status != 200 && status != 201 {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := public.port(t, 8000, "/y"); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}
