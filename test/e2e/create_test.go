package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// What this version does not do is refused with the field's name, never ignored.
func TestRefusedAtCreate(t *testing.T) {
	for spec, names := range map[string]string{
		"runtime: gvisor":                "runtime",
		"runtime: natve":                 "runtime",
		"mem_limit: 1Ki":                 "mem_limit",
		"mem_limit: 100Ti":               "mem",
		"fs: {mounts: [\"/etc:/data\"]}": "/etc",
		"fs: {mounts: [{source: /var/run/docker.sock, target: /d}]}": "docker.sock",
		"fs: {writable_dirs: [relative]}":                            "fs.writable_dirs",
		"seccomp: {allow_extra: [mount]}":                            "seccomp.allow_extra",
		"seccomp: {profile: unconfined}":                             "seccomp.profile",
		"no_such_field: 1":                                           "no_such_field",
		"cpu_limit: [1]":                                             "cpu_limit",
	} {
		t.Run(spec, func(t *testing.T) {
			s, err := shared.c.Create(t.Context(), dsec.CreateOptions{SpecYAML: spec})
			if err == nil {
				_ = s.Stop(t.Context(), "")
				t.Fatal("it was made")
			}
			var e *dsec.Error
			if !errors.As(err, &e) || e.Class == dsec.ClassInfrastructure || e.Remedy == "" || !strings.Contains(e.Error(), names) {
				t.Errorf("%#v", err)
			}
		})
	}
	for name, o := range map[string]dsec.CreateOptions{
		"template": {Template: "no-such-template"}, "code": {Code: []byte("this is no tar")}, "priority": {Priority: "no-such-level"},
		"labels": {Labels: map[string]string{"": "x"}}, "env": {Env: map[string]string{"A=B": "x"}},
	} {
		s, err := shared.c.Create(t.Context(), o)
		if err == nil {
			_ = s.Stop(t.Context(), "")
			t.Errorf("%s: it was made", name)
			continue
		}
		var e *dsec.Error
		if !errors.As(err, &e) || e.Class != dsec.ClassUser {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func tarOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)
	for name, text := range files {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func TestCodeIsThereBeforeRunning(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{Code: tarOf(t, map[string]string{"src/main.sh": "#!/bin/sh\necho from the code", "/abs": "y"})})
	if r := mustRun(t, s, dsec.Command{Argv: []string{"/workspace/src/main.sh"}}); stdout(r) != "from the code\n" {
		t.Errorf("%q %v", stdout(r), r)
	}
	if r := mustRun(t, s, dsec.Command{Script: `stat -c %u:%g /workspace/src/main.sh; ls /workspace/abs; ls /abs 2>/dev/null; true`}); stdout(r) != "1000:1000\n/workspace/abs\n" {
		t.Errorf("%q", stdout(r))
	}
	_, err := shared.c.Create(t.Context(), dsec.CreateOptions{Code: tarOf(t, map[string]string{"../../etc/escape": "x"})})
	var e *dsec.Error
	if !errors.As(err, &e) || e.Class != dsec.ClassUser {
		t.Errorf("code that climbs: %v", err)
	}
}

func TestCodeGoesWhereItIsSaid(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{CodeDir: "/home/user/app", Code: tarOf(t, map[string]string{"hello": "hi"})})
	if r := mustRun(t, s, dsec.Command{Argv: []string{"cat", "/home/user/app/hello"}}); stdout(r) != "hi" {
		t.Errorf("%q %v", stdout(r), r)
	}
}

func TestDataMounts(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	allowed, other := filepath.Join(dir, "data"), filepath.Join(dir, "other")
	for _, d := range []string{allowed + "/sub", other} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(allowed+"/sub/file", []byte("payload"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, allowed+"/way-out"); err != nil {
		t.Fatal(err)
	}
	e := startOwn(t, "--config", configFile(t, "data_mounts: ["+allowed+"]"))
	for _, pooled := range []bool{false, true} {
		s := e.session(t, dsec.CreateOptions{SpecYAML: fmt.Sprintf("fs: {mounts: [\"%s:/data\", \"%s/sub:/mnt/sub:ro\"]}", allowed, allowed), NoPool: !pooled})
		r := mustRun(t, s, dsec.Command{User: "root", Script: `cat /data/sub/file /mnt/sub/file; echo; for f in /data/new /data/sub/file /mnt/sub/file; do (echo x > $f) 2>/dev/null && echo WRITTEN; done
			mount -o remount,rw /data 2>/dev/null && echo REMOUNTED; rm -rf /data/sub 2>/dev/null; cat /data/sub/file`})
		if stdout(r) != "payloadpayload\npayload" {
			t.Errorf("pooled %v: %q %q", pooled, stdout(r), dsec.Output(r.GetStderr()))
		}
	}
	if b, err := os.ReadFile(allowed + "/sub/file"); err != nil || string(b) != "payload" {
		t.Errorf("the host's file: %q, %v", b, err)
	}
	for _, m := range []string{other + ":/data", dir + ":/data", "/:/data", allowed + "/../other:/data", allowed + "/way-out:/data", allowed + "/nothing:/data",
		allowed + ":/proc/x", allowed + ":/data:rw"} {
		s, err := e.c.Create(t.Context(), dsec.CreateOptions{SpecYAML: fmt.Sprintf("fs: {mounts: [%q]}", m)})
		if err == nil {
			_ = s.Stop(t.Context(), "")
			t.Errorf("mount %s was allowed", m)
		}
		noInfrastructure(t, err)
	}
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "dsec.yaml")
	if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// A create whose caller goes away leaves nothing, at whatever moment that is.
func TestCancelledCreateLeavesNothing(t *testing.T) {
	const answered = `dsec_request_seconds_count{call="/dsec.v1.SessionService/Create",code="ok"}`
	before := shared.metric(t, answered)
	var wg sync.WaitGroup
	var made sync.Map
	var heard atomic.Int64
	for i := range 40 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*500*time.Microsecond)
			defer cancel()
			if s, err := shared.c.Create(ctx, dsec.CreateOptions{Job: "cancelled", NoPool: i%2 == 0, Code: tarOf(t, map[string]string{"f": "x"})}); err == nil {
				made.Store(s.ID(), s)
				heard.Add(1)
			}
		})
	}
	wg.Wait()
	// A session lives for an answer. Of answers that were sent before their clients gave up, and came too late,
	// the server cannot know: their sessions RUN, as many as there were.
	eventually(t, "only the sessions that were answered live", func() bool {
		unheard := 0
		for info, err := range shared.c.List(t.Context(), dsec.ListOptions{Job: "cancelled"}) {
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := made.Load(info.GetId()); !ok && info.GetPhase() != dsec.Completed && info.GetPhase() != dsec.Failed {
				if unheard++; info.GetPhase() != dsec.Running {
					return false
				}
			}
		}
		return unheard == int(shared.metric(t, answered)-before)-int(heard.Load())
	})
	if _, err := shared.c.Stop(t.Context(), dsec.ByJob("cancelled"), "end of the test"); err != nil {
		t.Fatal(err)
	}
}

func TestStopWhileCreating(t *testing.T) {
	for i := range 10 {
		key := fmt.Sprintf("stop-%d-%d", i, time.Now().UnixNano())
		var wg sync.WaitGroup
		var results []dsec.CreateResult
		wg.Go(func() {
			results, _ = shared.c.CreateN(t.Context(), 4, dsec.CreateOptions{IdempotencyKey: key, NoPool: true}, nil)
		})
		time.Sleep(time.Duration(i) * 2 * time.Millisecond)
		if _, err := shared.c.Stop(t.Context(), dsec.ByKey(key), "changed my mind"); err != nil && !dsec.IsReason(err, "not_found") {
			t.Error(err)
		}
		wg.Wait()
		for _, r := range results {
			noInfrastructure(t, r.Err)
		}
		// Those that were made after the stop (it may have come before the create) go now.
		out, err := shared.c.Stop(t.Context(), dsec.ByKey(key), "again")
		if err != nil && !dsec.IsReason(err, "not_found") {
			t.Fatal(err)
		}
		for _, o := range out {
			if e := dsec.FromWire(o.GetError()); e != nil {
				t.Error(e)
			}
			if p := o.GetSession().GetPhase(); p != dsec.Completed && p != dsec.Failed {
				t.Errorf("%s is %s", o.GetId(), p)
			}
		}
	}
}

func TestKeysAndProjects(t *testing.T) {
	operator, err := dsec.New(dsec.Options{URL: "unix://" + shared.DataDir() + "/dsec.sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	made, err := operator.Keys.CreateKey(t.Context(), &dsecv1.CreateKeyRequest{Project: "another", Name: "e2e"})
	if err != nil {
		t.Fatal(dsec.AsError(err))
	}
	other, err := dsec.New(dsec.Options{URL: shared.URL(), APIKey: made.GetSecret()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	mine := shared.session(t, dsec.CreateOptions{})
	theirs, err := other.Create(t.Context(), dsec.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"get": func() error { _, err := other.Session(mine.ID()).Get(t.Context()); return err }(),
		"run": func() error { _, err := other.Session(mine.ID()).Sh(t.Context(), "true"); return err }(),
		"read": func() error {
			_, err := other.Session(mine.ID()).ReadFile(t.Context(), "/etc/passwd", dsec.ReadOptions{})
			return err
		}(),
		"dial": func() error { _, err := other.Session(mine.ID()).Dial(t.Context(), "tcp", "127.0.0.1:1"); return err }(),
		"stop": other.Session(mine.ID()).Stop(t.Context(), "mine now"),
		"back": func() error { _, err := shared.c.Session(theirs.ID()).Get(t.Context()); return err }(),
	} {
		if !dsec.IsReason(err, "not_found") {
			t.Errorf("%s of another project's session: %v", name, err)
		}
	}
	for info, err := range other.List(t.Context(), dsec.ListOptions{}) {
		if err != nil || info.GetProject() != "another" {
			t.Errorf("list shows %v, %v", info, err)
		}
	}
	if out, err := other.Stop(t.Context(), &dsec.Selector{All: true}, "all of mine"); err != nil || len(out) != 1 {
		t.Errorf("stop of all: %v %v", out, err)
	}
	mustRun(t, mine, dsec.Command{Argv: []string{"true"}})
	if _, err := other.Keys.ListKeys(t.Context(), &dsecv1.ListKeysRequest{}); !dsec.IsReason(dsec.AsError(err), "forbidden") {
		t.Errorf("keys by a key: %v", dsec.AsError(err))
	}
	if _, err := operator.Keys.RevokeKey(t.Context(), &dsecv1.RevokeKeyRequest{Id: made.GetKey().GetId()}); err != nil {
		t.Fatal(dsec.AsError(err))
	}
	for _, c := range []*dsec.Client{other, client(t, shared.URL(), "e2b_0123"), client(t, shared.URL(), "")} {
		if _, err := c.Create(t.Context(), dsec.CreateOptions{}); !dsec.IsReason(err, "unauthenticated") {
			t.Errorf("with a revoked, wrong or no key: %v", err)
		}
	}
}

func client(t *testing.T, url, key string) *dsec.Client {
	t.Helper()
	c, err := dsec.New(dsec.Options{URL: url, APIKey: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
