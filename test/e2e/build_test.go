package e2e

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestBuilds(t *testing.T) {
	e := startOwn(t)
	e.debian(t)
	t.Run("dockerfile", e.dockerfileToSession)
	t.Run("alias", e.aliasIsListed)
	t.Run("killed", e.buildAndKill)
}

// A project's template is listed by what the project calls it, beside the id that it has in the node's store.
func (e *env) aliasIsListed(t *testing.T) {
	var b struct{ TemplateID, BuildID string }
	if status, text := e.http(t, "POST", "/v3/templates", `{"name": "called"}`); status/100 != 2 || json.Unmarshal([]byte(text), &b) != nil {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := e.http(t, "POST", "/v2/templates/"+b.TemplateID+"/builds/"+b.BuildID, `{"fromTemplate": "debian"}`); status/100 != 2 {
		t.Fatalf("%d %s", status, text)
	}
	eventually(t, "the build is ready", func() bool {
		_, text := e.http(t, "GET", "/templates/"+b.TemplateID+"/builds/"+b.BuildID+"/status", "")
		return strings.Contains(text, `"ready"`)
	})
	for _, args := range [][]string{{"template", "ls"}, {"template", "show", b.TemplateID}, {"__complete", "template", "show", ""}} {
		cmd := exec.Command(binary(), args...)
		cmd.Env = append(os.Environ(), "DSEC_URL=", "DSEC_DATA_DIR="+e.DataDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !regexp.MustCompile(b.TemplateID+`\b(.|\n)*\bcalled\b.*\bdefault\b`).Match(out) {
			t.Errorf("%v: %v: %s", args, err, out)
		}
	}
	if status, text := e.http(t, "DELETE", "/templates/called", ""); status/100 != 2 {
		t.Errorf("%d %s", status, text)
	}
}

// A template by a Dockerfile starts its server in every session, which runs when that is up.
func (e *env) dockerfileToSession(t *testing.T) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	const server = "import http.server\nprint('serving', flush=True)\nhttp.server.HTTPServer(('127.0.0.1', 8000), http.server.SimpleHTTPRequestHandler).serve_forever()\n"
	if err := w.WriteHeader(&tar.Header{Name: "server.py", Size: int64(len(server)), Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, server)
	w.Close()
	var log strings.Builder
	build := func(name, text, ready string) (*dsec.Template, error) {
		return e.c.BuildDockerfile(t.Context(), name, dsec.DockerfileOptions{Dockerfile: []byte(text), Files: bytes.NewReader(files.Bytes()), Ready: ready},
			func(p *dsec.Progress) { log.WriteString(p.GetStage() + " " + p.GetMessage() + "\n") })
	}
	made, err := build("serving", "FROM debian\nENV GREETING=hello\nWORKDIR /srv\nCOPY . .\nRUN echo $GREETING >greeting\nUSER user\nCMD [\"python3\", \"server.py\"]",
		"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8000))'")
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	if made.GetName() != "serving" || !strings.Contains(log.String(), "start serving\n") {
		t.Errorf("%v\n%s", made, &log)
	}
	const get = `python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:8000/greeting").read().decode(), end="")'; echo $GREETING`
	for range 3 { // made and pooled
		s := e.session(t, dsec.CreateOptions{Template: "serving"})
		r, err := s.Run(t.Context(), dsec.Command{Script: get})
		if err != nil || string(r.GetStdout().GetHead()) != "hello\nhello\n" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	var failure *dsec.Error
	if _, err := build("failing", "FROM debian\nRUN echo out of >&2; exit 3", ""); !errors.As(err, &failure) || failure.Class != dsec.ClassUser || !strings.Contains(err.Error(), "line 2: RUN") {
		t.Errorf("a failing step: %v", err)
	}
	if _, err := build("failing", "FROM debian\nCMD exit 3", "false"); err == nil || !strings.Contains(err.Error(), "ended with 3") {
		t.Errorf("a failing start: %v", err)
	}
}

// What kill -9 leaves of a build is gone after the restart, and the build says why it failed.
func (e *env) buildAndKill(t *testing.T) {
	call := func(method, path, body string, into any) {
		t.Helper()
		status, text := e.http(t, method, path, body)
		if status/100 != 2 || into != nil && json.Unmarshal([]byte(text), into) != nil {
			t.Fatalf("%s %s: %d %s", method, path, status, text)
		}
	}
	var b struct{ TemplateID, BuildID string }
	call("POST", "/v3/templates", `{"name": "cut"}`, &b)
	call("POST", "/v2/templates/"+b.TemplateID+"/builds/"+b.BuildID, `{"fromTemplate": "debian", "steps": [{"type": "RUN", "args": ["echo up; sleep 600"]}]}`, nil)
	type status struct {
		Status     string
		LogEntries []struct{ Message string }
		Reason     struct{ Message string }
	}
	var s status
	for deadline := time.Now().Add(patience(time.Minute)); ; time.Sleep(20 * time.Millisecond) {
		s = status{}
		call("GET", "/templates/"+b.TemplateID+"/builds/"+b.BuildID+"/status", "", &s)
		if n := len(s.LogEntries); n > 0 && s.LogEntries[n-1].Message == "up" {
			break
		}
		if s.Status == "error" || time.Now().After(deadline) {
			t.Fatalf("it does not run: %+v", s)
		}
	}
	e.Kill()
	e.again(t)
	s = status{}
	call("GET", "/templates/"+b.TemplateID+"/builds/"+b.BuildID+"/status", "", &s)
	if s.Status != "error" || !strings.Contains(s.Reason.Message, "server was stopped") || len(s.LogEntries) == 0 {
		t.Errorf("%+v", s)
	}
	call("DELETE", "/templates/cut", "", nil)
}
