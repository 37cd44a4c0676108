package e2b_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
)

// server is a daemon that the first test which needs it starts, with its key.
var (
	server *launch.Daemon
	key    string
	dir    string
	start  sync.Once
	failed error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if left := end(); len(left) > 0 {
		log.Printf("left on the machine:\n%s", strings.Join(left, "\n"))
		code = 1
	}
	os.Exit(code)
}

// binary is the dsec under test.
func binary() string {
	if b := os.Getenv("DSEC_TEST_BINARY"); b != "" {
		return b
	}
	return "../../bin/dsec"
}

func needsServer(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a server makes real boxes and needs root")
	}
	if err := launch.Current(binary()); errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	start.Do(func() { failed = begin() })
	if failed != nil {
		t.Fatal(failed)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", server.Log())
		}
	})
}

func begin() (err error) {
	if dir, err = os.MkdirTemp("", "dsec-e2b-"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if server, err = launch.Start(ctx, launch.Options{Binary: binary(), DataDir: dir, Args: []string{"--no-pool"}}); err != nil {
		return err
	}
	key, err = server.Key()
	return err
}

// end stops the server and tells what is left.
func end() (left []string) {
	if dir == "" {
		return nil
	}
	defer os.RemoveAll(dir)
	if failed == nil {
		if err := server.Stop(); err != nil {
			left = append(left, "daemon: "+err.Error())
		}
	}
	if out, err := exec.Command(binary(), "down", "--data-dir", dir).CombinedOutput(); err != nil {
		left = append(left, fmt.Sprintf("down: %v: %s", err, out))
	}
	return append(left, launch.Remains(dir, native.CgroupName(dir))...)
}

// answer of a call.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// get reads a field of the answer's object, as it is written.
func (a *answer) get(name string) string {
	var v map[string]any
	if json.Unmarshal(a.body, &v) != nil {
		return ""
	}
	return fmt.Sprint(v[name])
}

// ids are those of the listed sandboxes.
func (a *answer) ids(t *testing.T) string {
	t.Helper()
	var v []struct{ SandboxID, State string }
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	var out []string
	for _, s := range v {
		out = append(out, s.SandboxID+" "+s.State)
	}
	return strings.Join(out, ",")
}

// call does one call with the key and headers ("K: v") and wants a status.
func call(t *testing.T, want int, method, path, body string, headers ...string) *answer {
	t.Helper()
	a := ask(t, method, path, body, headers...)
	if a.status != want {
		t.Fatalf("%s %s: %d %s, want %d", method, path, a.status, a.body, want)
	}
	if want >= 400 && want != http.StatusBadGateway && (a.get("code") != fmt.Sprint(want) || a.get("message") == "") {
		t.Errorf("%s %s: not E2B's error shape: %s", method, path, a.body)
	}
	return a
}

func ask(t *testing.T, method, path, body string, headers ...string) *answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, server.URL()+path, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", key)
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &answer{res.StatusCode, res.Header, b}
}

// sandbox makes one that ends with the test, from the template that every server has.
func sandbox(t *testing.T, fields string) string {
	t.Helper()
	id := call(t, 201, "POST", "/v2/sandboxes", `{"templateID":"base"`+fields+`}`).get("sandboxID")
	t.Cleanup(func() {
		req, _ := http.NewRequest("DELETE", server.URL()+"/sandboxes/"+id, nil)
		req.Header.Set("X-API-KEY", key)
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
		}
	})
	return id
}

// eventually waits for what a clock brings about. The machine may be slow.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
