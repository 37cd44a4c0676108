package node

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// The tests of this file go through real guests.
func realGuests(c *Config) { c.Connect = nil }

func (r *rig) guest(session string) (guestclient.API, func()) {
	r.t.Helper()
	g, release, err := r.node.Acquire(context.Background(), session)
	if err != nil {
		r.t.Fatal(err)
	}
	return g, release
}

func sh(op, script string) guestproto.ExecRequest {
	return guestproto.ExecRequest{OpID: op, Argv: []string{"/bin/sh", "-c", script}}
}

func TestOpsSurviveTheNode(t *testing.T) {
	r := newRig(t, realGuests)
	ctx := context.Background()
	b := r.create("s")
	g, release := r.guest("s")
	res, err := g.Run(ctx, sh("one", "echo hello"))
	if err != nil || string(res.Stdout.Head) != "hello\n" {
		t.Fatalf("%+v, %v", res, err)
	}
	flag := filepath.Join(r.dir, "boxes", b.Box, "go")
	bg := sh("two", "while [ ! -e "+flag+" ]; do sleep 0.01; done; echo done")
	bg.Background = true
	if _, err := g.Run(ctx, bg); err != nil {
		t.Fatal(err)
	}
	release()
	r.crash()
	r.start()
	if i, err := r.node.Inspect(ctx, "s"); err != nil || i.Box != b.Box {
		t.Errorf("inspect: %+v, %v", i, err)
	}
	g, release = r.guest("s")
	defer release()
	// The same op id gives the recorded result, and nothing runs twice.
	if res, err = g.Run(ctx, sh("one", "echo hello")); err != nil || string(res.Stdout.Head) != "hello\n" {
		t.Errorf("repeated: %+v, %v", res, err)
	}
	if _, err := g.Run(ctx, sh("one", "echo other")); errdefs.From(err).Reason != errdefs.IdempotencyClash {
		t.Errorf("another request with a used op id: %v", err)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the op that ran goes on to its end", func() bool {
		i, err := g.Get(ctx, "two")
		return err == nil && !i.Running && i.Result.ExitCode == 0
	})
}

func TestCodeReachesTheBox(t *testing.T) {
	r := newRig(t, realGuests)
	var code bytes.Buffer
	w := tar.NewWriter(&code)
	if err := w.WriteHeader(&tar.Header{Name: "main.py", Mode: 0o644, Size: 2, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte("ok"))
	_ = w.Close()
	dir := filepath.Join(r.dir, "code")
	q := request("s")
	q.Code, q.CodeDir = &code, dir
	if _, err := r.node.Create(context.Background(), q); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "main.py")); err != nil || string(got) != "ok" {
		t.Errorf("%q, %v", got, err)
	}

	q = request("bad")
	q.Code, q.CodeDir = strings.NewReader("this is no tar, and it is long enough to be taken for one"+strings.Repeat("x", 1024)), dir
	if _, err := r.node.Create(context.Background(), q); errdefs.From(err).Class != errdefs.User {
		t.Errorf("code that is no tar: %v", err)
	}
	r.destroy("s")
	r.empty()
}

func TestFilesAreReadableInAudit(t *testing.T) {
	r := newRig(t, realGuests)
	ctx := context.Background()
	q := request("s")
	q.MaxRuntime = 50 * time.Millisecond
	if _, err := r.node.Create(ctx, q); err != nil {
		t.Fatal(err)
	}
	old, release := r.guest("s")
	defer release()
	path := filepath.Join(r.dir, "evidence")
	if err := os.WriteFile(path, []byte("42"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.event(RuntimeOver)
	eventually(t, "who acquired before loses the connection", func() bool { return over(old.Done()) })
	g, release := r.guest("s")
	defer release()
	_, f, err := g.ReadFile(ctx, path, "", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "42" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := g.Start(ctx, sh("x", "true")); errdefs.From(err).Reason != errdefs.TimedOut {
		t.Errorf("exec: %v", err)
	}
}

func TestDeathWhileAnOpRunsIsPolicy(t *testing.T) {
	r := newRig(t, realGuests)
	b := r.create("s")
	g, release := r.guest("s")
	defer release()
	failed := make(chan error)
	go func() {
		_, err := g.Run(context.Background(), sh("op", "sleep 100"))
		failed <- err
	}()
	eventually(t, "the op runs", func() bool {
		i, err := g.Get(context.Background(), "op")
		return err == nil && i.Running
	})
	r.rt.Box(b.Box).Kill()
	if e := errdefs.From(<-failed); e.Class == errdefs.Infrastructure {
		t.Errorf("the op's failure: %+v", e)
	}
	if e := errdefs.From(r.acquire("s")); e.Class != errdefs.Policy {
		t.Errorf("acquire: %+v", e)
	}
	r.event(BoxLost)
}

func TestMetricsNameNoBox(t *testing.T) {
	reg := prometheus.NewRegistry()
	r := newRig(t, func(c *Config) { c.Metrics = reg })
	b := r.create("s")
	r.destroy("s")
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range all {
		seen[f.GetName()] = true
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if v := l.GetValue(); v == b.Box || v == "s" {
					t.Errorf("%s has a label %s=%s", f.GetName(), l.GetName(), v)
				}
			}
		}
	}
	for _, name := range []string{"creates_total", "create_seconds", "destroy_seconds", "boxes", "memory_promised_bytes"} {
		if !seen["dsec_node_"+name] {
			t.Errorf("no metric %s", name)
		}
	}
	if err := r.node.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{DataDir: r.dir, Runtimes: r.node.cfg.Runtimes, Metrics: reg}); err != nil {
		t.Errorf("the next node of this process: %v", err)
	}
}
