package api_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/errdefs"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// raw sends a request line, headers and a part of a body, and leaves the rest to the caller.
func (w *world) raw(head string) net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	io.WriteString(conn, strings.Replace(head, "\r\n", " HTTP/1.1\r\nHost: x\r\nX-API-Key: "+w.key+"\r\n", 1))
	return conn
}

// metric waits until /metrics has a line with that begin.
func (w *world) metric(line string) {
	w.t.Helper()
	var m string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, _, m = w.curl("GET", "/metrics", ""); strings.Contains(m, "\n"+line) {
			return
		}
	}
	w.t.Errorf("no metric %s in\n%s", line, m)
}

// What a client does to its own transfer is no failure of the platform.
func TestBrokenTransfersAreTheClients(t *testing.T) {
	t.Cleanup(api.SetBodyStall(200 * time.Millisecond)) // after the world's handlers have ended
	w := newWorld(t)
	id := w.session().ID()
	files := "/v1/sessions/" + id + "/files?path=/f"
	w.raw("PUT " + files + "\r\nContent-Length: 100\r\n\r\nabc").Close()
	w.metric(`dsec_request_seconds_count{call="files_put",code="canceled"} 1`)
	w.raw("PUT " + files + "\r\nContent-Length: 100\r\n\r\nabc") // and no more
	w.metric(`dsec_request_seconds_count{call="files_put",code="deadline_exceeded"} 1`)
	w.raw("PUT " + files + "\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 100\r\n\r\nabc") // which asks for no stream of bytes
	w.metric(`dsec_request_seconds_count{call="files_put",code="deadline_exceeded"} 2`)
	w.raw("POST /dsec.v1.SessionService/Get\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{").Close()
	w.metric(`dsec_request_seconds_count{call="/dsec.v1.SessionService/Get",code="canceled"} 1`)

	if err := os.WriteFile(w.guest(id).host("/f"), make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	w.raw("GET " + files + "\r\n\r\n") // a client that takes nothing
	w.metric(`dsec_request_seconds_count{call="files_get",code="canceled"} 1`)
	if logs := w.logs.String(); strings.Contains(logs, "class=infrastructure") {
		t.Error("somebody else is blamed:", logs)
	}
}

// A wrong value may be a secret in the wrong place.
func TestWrongValuesAreNotRepeated(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{
		`{"session":{"secrets":{"PIN":8675309}}}`, `{"session":{"secrets":"8675309"}}`, `{"session":{"secrets":{"PIN":8675309x}}}`, `{"session":{"secrets":["8675309"]}}`,
	} {
		code, _, answer := w.curl("POST", "/dsec.v1.SessionService/Create", body)
		if code != http.StatusBadRequest || strings.Contains(answer, "8675309") {
			t.Errorf("%s: %d %s", body, code, answer)
		}
	}
	if strings.Contains(w.logs.String(), "8675309") {
		t.Error("it is in the log")
	}
}

// A client that takes nothing of a stream is given up: its session may be idle again.
func TestStuckStreamsAreGivenUp(t *testing.T) {
	t.Cleanup(api.SetBodyStall(200 * time.Millisecond)) // after the world's handlers have ended
	w := newWorld(t)
	id := w.session().ID()
	body := `{"session_id":"` + id + `","command":{"script":"head -c 60000000 /dev/zero; sleep 20","max_output":67108864}}`
	envelope := append([]byte{0, 0, 0, 0, byte(len(body))}, body...)
	conn := w.raw("POST /dsec.v1.ExecService/Start\r\nContent-Type: application/connect+json\r\nContent-Length: " + fmt.Sprint(len(envelope)) + "\r\n\r\n")
	conn.Write(envelope)
	w.metric(`dsec_request_seconds_count{call="/dsec.v1.ExecService/Start",code="canceled"} 1`)
	if logs := w.logs.String(); strings.Contains(logs, "class=infrastructure") {
		t.Error("somebody else is blamed:", logs)
	}
}

func TestListsAreBounded(t *testing.T) {
	w := newWorld(t)
	long := func(item string, n int) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	var dirs []string
	for i := range 200_000 {
		dirs = append(dirs, fmt.Sprintf(`"/d%d"`, i))
	}
	for name, c := range map[string]struct{ call, body, object string }{
		"phases":   {"List", `{"phases":[` + long(`"RUNNING"`, 60_000) + `]}`, "field phases"},
		"dirs":     {"Create", `{"session":{"spec":{"fs":{"writable_dirs":[` + strings.Join(dirs, ",") + `]}}}}`, "field fs.writable_dirs"},
		"env":      {"Create", `{"session":{"env":{"A":"` + strings.Repeat("x", 65<<10) + `"}}}`, "field session.env"},
		"env each": {"Create", `{"session":{"count":30000,"env":{"A":"` + strings.Repeat("x", 60<<10) + `"}}}`, "field session.count"},
	} {
		start := time.Now()
		_, _, answer := w.curl("POST", "/dsec.v1.SessionService/"+c.call, c.body)
		if d := detail(t, answer); d["object"] != c.object || d["class"] == "infrastructure" || len(answer) > 10_000 {
			t.Errorf("%s: %.300s", name, answer)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

func TestExecsAreCounted(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	for _, script := range []string{"true", "true", "exit 3", "kill -9 $$"} {
		if _, err := s.Sh(t.Context(), script); err != nil {
			t.Fatal(err)
		}
	}
	p, err := s.Start(t.Context(), dsec.Command{Script: "exit 4"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(nil, nil); err != nil {
		t.Fatal(err)
	}
	w.metric(`dsec_execs_total{outcome="ok"} 2`)
	w.metric(`dsec_execs_total{outcome="exit"} 2`)
	w.metric(`dsec_execs_total{outcome="signal"} 1`)
}

// What a client has left ends, although what it was connected to does not notice.
func TestForgottenConnectionsEnd(t *testing.T) {
	defer api.SetLinger(100 * time.Millisecond)()
	w := newWorld(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	held := make(chan net.Conn, 1)
	go func() {
		if c, err := ln.Accept(); err == nil {
			held <- c // and never looks at it
		}
	}()
	c, err := w.session().Dial(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	w.metric(`dsec_requests_running{call="dial"} 1`)
	c.Close()
	w.metric(`dsec_requests_running{call="dial"} 0`)
	(<-held).Close()
}

// What no box gets is refused before anything is made for it.
func TestSystemCallsAreCheckedFirst(t *testing.T) {
	w := newWorld(t, func(c *api.Config) {
		c.Seccomp = func(profile string, extra []string) error {
			return errdefs.Policyf(errdefs.Forbidden, "field seccomp.allow_extra", "remove it", "%s %v", profile, extra)
		}
	})
	w.session() // asks for none
	code, _, answer := w.curl("POST", "/dsec.v1.SessionService/Create", `{"session":{"spec":{"seccomp":{"allow_extra":["bpf"]}}}}`)
	if d := detail(t, answer); code != http.StatusForbidden || d["reason"] != "forbidden" || d["message"] != "default [bpf]" {
		t.Error(code, answer)
	}
}
