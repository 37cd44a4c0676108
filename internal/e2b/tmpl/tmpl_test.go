package tmpl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/api"
	"github.com/dsec-platform/dsec/internal/build"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire is the facade over real builds, without boxes: what runs no command needs none. The project of a
// call is its key; what the facade says is not keyed has none.
type wire struct {
	t      *testing.T
	url    string
	client *http.Client
}

func newWire(t *testing.T) *wire {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: owners of files")
	}
	dir := t.TempDir()
	templates, err := template.Open(dir, template.Options{})
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root.tar")
	if err := os.WriteFile(root, archive(t, "etc/passwd", "root:x:0:0::/root:/bin/sh\n", "bin/sh", "x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := templates.Import(t.Context(), template.ImportRequest{Name: "base", Source: template.Source{Kind: template.Tar, Ref: root}}); err != nil {
		t.Fatal(err)
	}
	builds, err := build.Open(build.Config{Dir: filepath.Join(dir, "builds"), Templates: templates, Importer: templates})
	if err != nil {
		t.Fatal(err)
	}
	facade := e2b.New(e2b.Config{Templates: New(builds, slog.New(slog.DiscardHandler))})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := facade.Route(r)
		if !route.Mine {
			t.Errorf("%s %s is not the facade's", r.Method, r.URL.Path)
		}
		project := r.Header.Get("X-Api-Key")
		if !route.Keyed {
			project = ""
		}
		facade.Serve(w, r, api.FacadeCaller{Project: project, Operator: project == "default", Allow: func(string) error { return nil }})
	}))
	w := &wire{t: t, url: srv.URL, client: srv.Client()}
	t.Cleanup(func() { srv.Close(); builds.Close() })
	return w
}

func archive(t *testing.T, pairs ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for i := 0; i < len(pairs); i += 2 {
		if err := tw.WriteHeader(&tar.Header{Name: pairs[i], Mode: 0o644, Size: int64(len(pairs[i+1]))}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(tw, pairs[i+1])
	}
	tw.Close()
	return b.Bytes()
}

// call gives the status and the decoded answer.
func (w *wire) call(project, method, path string, body any) (int, map[string]any) {
	w.t.Helper()
	status, text := w.raw(project, method, path, body)
	out := map[string]any{}
	if len(text) > 0 && text[0] == '{' {
		if err := json.Unmarshal(text, &out); err != nil {
			w.t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return status, out
}

func (w *wire) raw(project, method, path string, body any) (int, []byte) {
	w.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		r = bytes.NewReader(b)
	case string:
		r = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	if !strings.HasPrefix(path, "http") {
		path = w.url + path
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, path, r)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", project)
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, text
}

// want is call for a status.
func (w *wire) want(status int, project, method, path string, body any) map[string]any {
	w.t.Helper()
	got, out := w.call(project, method, path, body)
	if got != status {
		w.t.Fatalf("%s %s gives %d %v, want %d", method, path, got, out, status)
	}
	return out
}

type m = map[string]any

// finish polls as SDKs do and gives the last status and all messages.
func (w *wire) finish(project, id, bid string) (m, string) {
	w.t.Helper()
	var log strings.Builder
	offset := 0
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		s := w.want(200, project, "GET", fmt.Sprintf("/templates/%s/builds/%s/status?logsOffset=%d", id, bid, offset), nil)
		lines := s["logEntries"].([]any)
		offset += len(lines)
		for _, l := range lines {
			fmt.Fprintf(&log, "%v %v\n", l.(m)["step"], l.(m)["message"])
		}
		if s["status"] != "building" && s["status"] != "waiting" && len(lines) == 0 {
			return s, log.String()
		}
	}
	w.t.Fatal("the build does not end")
	return nil, ""
}

func TestBuildBySteps(t *testing.T) {
	w := newWire(t)
	r := w.want(202, "default", "POST", "/v3/templates", m{"name": "My_Env:v1", "cpuCount": 1, "memoryMB": 256, "minFreeDiskMb": 300})
	id, bid := r["templateID"].(string), r["buildID"].(string)
	if r["public"] != false || fmt.Sprint(r["tags"], r["aliases"], r["names"]) != "[v1] [My_Env] [My_Env]" {
		t.Errorf("%v", r)
	}
	hash := strings.Repeat("ab", 32)
	link := w.want(201, "default", "GET", "/templates/"+id+"/files/"+hash, nil)
	if link["present"] != false {
		t.Errorf("%v", link)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.Write(archive(t, "src/a.txt", "hello"))
	z.Close()
	if status, text := w.raw("", "PUT", link["url"].(string), packed.Bytes()); status != 200 {
		t.Fatalf("upload: %d %s", status, text)
	}
	if link := w.want(201, "default", "GET", "/templates/"+id+"/files/"+hash, nil); link["present"] != true {
		t.Errorf("after the upload: %v", link)
	}
	steps := m{"fromTemplate": "base", "steps": []m{
		{"type": "ENV", "args": []string{"A", "1"}, "force": false},
		{"type": "COPY", "args": []string{"src", "/opt/$A", "", ""}, "filesHash": hash, "force": nil, "forceUpload": true},
		{"type": "WORKDIR", "args": []string{"/opt"}},
		{"type": "USER", "args": []string{"user"}},
	}}
	start := "/v2/templates/" + id + "/builds/" + bid
	w.want(202, "default", "POST", start, steps)
	w.want(202, "default", "POST", start, steps) // a retry
	if status, _ := w.call("default", "POST", start, m{"fromTemplate": "base"}); status != 409 {
		t.Errorf("another recipe for the build gives %d", status)
	}
	s, log := w.finish("default", id, bid)
	if s["status"] != "ready" || s["reason"] != nil || !strings.Contains(log, "2 step 2: COPY src /opt/$A\n") {
		t.Errorf("%v\n%s", s, log)
	}
	got := w.want(200, "default", "GET", "/templates/"+id, nil)
	if got["buildID"] != bid || got["cpuCount"] != 1.0 || got["memoryMB"] != 256.0 || got["diskSizeMB"] != 300.0 || got["buildStatus"] != "ready" || len(got["builds"].([]any)) != 1 {
		t.Errorf("%v", got)
	}
	_, list := w.raw("default", "GET", "/v2/templates?limit=1", nil)
	if !strings.Contains(string(list), id) {
		t.Errorf("%s", list)
	}
	if a := w.want(200, "default", "GET", "/templates/aliases/My_Env", nil); a["templateID"] != id {
		t.Errorf("%v", a)
	}
	w.want(200, "default", "GET", "/templates/aliases/base", nil) // of the node
	w.want(404, "default", "GET", "/templates/aliases/other", nil)
	w.want(404, "default", "GET", "/templates/aliases/My_Env:v2", nil)
	if tag := w.want(201, "default", "POST", "/templates/tags", m{"target": "My_Env:v1", "tags": []string{"v2", "prod"}}); tag["buildID"] != bid {
		t.Errorf("%v", tag)
	}
	w.want(204, "default", "DELETE", "/templates/tags", m{"name": "My_Env", "tags": []string{"prod"}})
	w.want(404, "default", "DELETE", "/templates/tags", m{"name": "My_Env", "tags": []string{"prod"}})
	if _, tags := w.raw("default", "GET", "/templates/My_Env/tags", nil); strings.Count(string(tags), bid) != 2 {
		t.Errorf("%s", tags)
	}
	if c := w.want(200, "default", "GET", "/templates/"+id+"/tags/count", nil); c["count"] != 2.0 {
		t.Errorf("%v", c)
	}
	if c := w.want(200, "default", "GET", "/templates/"+id+"/tags/exists?tag=v2", nil); c["exists"] != true {
		t.Errorf("%v", c)
	}
	logs := w.want(200, "default", "GET", "/templates/"+id+"/builds/"+bid+"/logs?direction=backward&limit=1", nil)["logs"].([]any)
	if len(logs) != 1 || !strings.Contains(fmt.Sprint(logs[0]), "ready") {
		t.Errorf("%v", logs)
	}
	// Nothing of it is another project's affair.
	for _, path := range []string{"/templates/" + id, "/templates/aliases/My_Env", "/templates/" + id + "/builds/" + bid + "/status", "/templates/" + id + "/files/" + hash} {
		w.want(404, "other", "GET", path, nil)
	}
	w.want(404, "other", "DELETE", "/templates/"+id, nil)
	theirs := w.want(202, "other", "POST", "/v3/templates", m{"name": "My_Env"})
	if theirs["templateID"] == id {
		t.Error("another project's request for an alias gives this one's template")
	}
	if link := w.want(201, "other", "GET", fmt.Sprintf("/templates/%s/files/%s", theirs["templateID"], hash), nil); link["present"] != false {
		t.Error("another project's files count as uploaded")
	}
	w.want(200, "default", "PATCH", "/templates/"+id, m{"public": true})
	w.want(200, "other", "GET", "/templates/aliases/"+id, nil)
	w.want(204, "default", "DELETE", "/templates/"+id, nil)
	w.want(404, "default", "GET", "/templates/"+id, nil)
}

// The steps' numbers are those by which SDKs find the line of a program.
func TestFailingSteps(t *testing.T) {
	w := newWire(t)
	for _, c := range []struct {
		recipe       m
		step, reason string
	}{
		{m{"fromTemplate": "none"}, "base", "there is no such template"},
		{m{"fromTemplate": "base", "steps": []m{{"type": "WORKDIR", "args": []string{"/x"}}, {"type": "USER", "args": []string{"ghost"}}}}, "2", "no such user"},
		{m{"fromTemplate": "base", "steps": []m{{"type": "COPY", "args": []string{"a", "/b"}, "filesHash": strings.Repeat("0", 64)}}}, "1", "were not uploaded"},
		{m{"fromTemplate": "base", "steps": []m{{"type": "RUN", "args": []string{"true"}}}}, "1", "commands need a runtime"},
	} {
		r := w.want(202, "default", "POST", "/v2/templates", m{"alias": "failing"})
		id, bid := r["templateID"].(string), r["buildID"].(string)
		w.want(202, "default", "POST", "/v2/templates/"+id+"/builds/"+bid, c.recipe)
		s, log := w.finish("default", id, bid)
		why, _ := s["reason"].(m)
		if s["status"] != "error" || why["step"] != c.step || !strings.Contains(fmt.Sprint(why["message"]), c.reason) || len(why["logEntries"].([]any)) != 1 {
			t.Errorf("%v: %v\n%s", c.recipe, s, log)
		}
	}
}

// The oldest form sends a Dockerfile with the request, and no files.
func TestDockerfileForm(t *testing.T) {
	w := newWire(t)
	r := w.want(202, "default", "POST", "/templates", m{"dockerfile": "FROM base\nCOPY x /y", "alias": "old", "cpuCount": 1, "memoryMB": 128, "startCmd": "serve"})
	id, bid := r["templateID"].(string), r["buildID"].(string)
	w.want(202, "default", "POST", "/templates/"+id+"/builds/"+bid, nil)
	if s, _ := w.finish("default", id, bid); s["status"] != "error" {
		t.Errorf("%v", s)
	}
	r = w.want(202, "default", "POST", "/templates/"+id, m{"dockerfile": "FROM base"})
	if r["templateID"] != id {
		t.Errorf("a rebuild is of another template: %v", r)
	}
	w.want(400, "default", "POST", "/templates", m{"dockerfile": "FROM a\nHEALTHCHECK CMD x", "alias": "old"})
}

// What cannot be used is refused with a reason, and changes nothing.
func TestRefused(t *testing.T) {
	w := newWire(t)
	r := w.want(202, "default", "POST", "/v3/templates", m{"alias": "a"})
	id, bid := r["templateID"].(string), r["buildID"].(string)
	start := "/v2/templates/" + id + "/builds/" + bid
	for _, c := range []struct {
		status       int
		method, path string
		body         any
		want         string
	}{
		{400, "POST", "/v3/templates", m{"name": "a b"}, "not a template's name"},
		{400, "POST", "/v3/templates", m{"name": "a:b:c"}, "not a tag"},
		{400, "POST", "/v3/templates", m{"name": "a", "magic": 1}, "magic"},
		{400, "POST", "/v3/templates", m{"name": "a", "cpuCount": -1}, "out of range"},
		{400, "POST", "/v3/templates", "{", "JSON"},
		{403, "POST", "/v3/templates", m{"name": "a", "teamID": "x"}, "belongs to project default"},
		{400, "POST", start, m{}, "either an image or a template"},
		{400, "POST", start, m{"fromImage": "a", "fromTemplate": "b"}, "either an image or a template"},
		{400, "POST", start, m{"fromTemplate": "base", "steps": []m{{"type": "FLY"}}}, "no instruction"},
		{400, "POST", start, m{"fromTemplate": "base", "steps": []m{{"type": "ENV", "args": []string{"A"}}}}, "ENV has 1"},
		{400, "POST", start, m{"fromTemplate": "base", "steps": []m{{"type": "COPY", "args": []string{"a", "b"}}}}, "filesHash"},
		{400, "POST", start, m{"fromImage": "a", "fromImageRegistry": m{"type": "aws"}}, "get-login-password"},
		{413, "POST", start, m{"fromTemplate": "base", "steps": make([]m, 0), "startCmd": strings.Repeat("x", maxBody)}, "more than"},
		{400, "GET", "/templates/" + id + "/files/XYZ", nil, "not a hash"},
		{401, "PUT", "/templates/" + id + "/files/" + strings.Repeat("a", 64) + "?project=default&expires=99999999999&signature=00", []byte("x"), "signature"},
		{404, "GET", "/templates/" + id + "/builds/nope/status", nil, "no such build"},
		{400, "GET", "/templates/" + id + "/builds/" + bid + "/status?logsOffset=-1", nil, "logsOffset"},
		{400, "GET", "/templates/" + id + "/builds/" + bid + "/logs?level=loud", nil, "level"},
		{404, "POST", "/templates/tags", m{"target": "a", "tags": []string{"x"}}, "no build of it has succeeded"},
		{404, "GET", "/templates/" + id + "/tags/groups", nil, "nothing here"},
	} {
		status, out := w.call("default", c.method, c.path, c.body)
		if status != c.status || !strings.Contains(fmt.Sprint(out["message"]), c.want) {
			t.Errorf("%s %s %.60v gives %d %v, want %d %s", c.method, c.path, c.body, status, out, c.status, c.want)
		}
	}
	for range 30 {
		if status, _ := w.call("default", "POST", "/v3/templates", m{"alias": "a"}); status == 429 {
			return
		}
	}
	t.Error("a project may ask for any number of builds at once")
}
