package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/dsec-platform/dsec/internal/doctor"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/rollout"
	"github.com/dsec-platform/dsec/internal/spec"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call runs a command line and gives its exit code and streams.
func call(t *testing.T, h Hooks, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("DSEC_URL", "")
	var out, errs bytes.Buffer
	e := &Env{In: strings.NewReader(stdin), Out: &out, Err: &errs, hooks: h}
	code = e.run(t.Context(), append([]string{"--data-dir", t.TempDir()}, args...))
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"pss", "did you mean ps?"},
		{"ps extra", "want no arguments"},
		{"ps --phase NOPE", "want one of PENDING"},
		{"ps -o xml", "want table or json"},
		{"ps --no-such-flag", "unknown flag: --no-such-flag (see `dsec ps --help`)"}, {"create --memory 1Gi", "(did you mean --mem?)"}, {"ps --lablel a=b", "(did you mean --label?)"}, {"exec x --timeout 5 -- true", "write it with its unit: 5s"}, {"ps -Z", "see `dsec ps --help`"},
		{"net explain a b", "want at most one SESSION"},
		{"create --count 0", "want 1 or more"},
		{"create --mem 2GB", "is not a size"},
		{"create -e =x", "want NAME=VALUE"},
		{"create -l novalue", "want NAME=VALUE"},
		{"create --rootfs maybe", "want readonly or writable"},
		{"exec", "want SESSION and a command"},
		{"exec abc", "want a command after --"},
		{"exec abc -c x -- y", "not both"},
		{"exec abc -d -T -- y", "excludes"},
		{"exec abc --shell-session s -- y", "takes a --script"},
		{"run", "want a command after --"},
		{"run --timeout -1s -- true", "want 1ms or more"},
		{"cp a b", "want SESSION:/path on one side"},
		{"cp abc:/x def:/y", "want SESSION:/path on one side"},
		{"cp abc:x -", "is absolute"},
		{"stop", "name sessions in one way"},
		{"stop abc --all", "name sessions in one way"},
		{"logs -f abc", "needs an OP"},
		{"template build x", "want a Dockerfile, or --debian"},
		{"template import x", "want NAME and SOURCE"},
		{"template nope", "unknown command"},
		{"rollout -g 0 x", "1 or more"},
		{"inspect", "want SESSION"},
	} {
		code, _, stderr := call(t, Hooks{}, "", strings.Fields(c.args)...)
		if code != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: code %d, %q, want %q", c.args, code, stderr, c.want)
		}
	}
}

func TestEveryCommandHasHelpAndExamples(t *testing.T) {
	e := &Env{}
	for _, cmd := range e.root().Commands() {
		if cmd.Short == "" || cmd.Example == "" && cmd.Name() != "completion" && cmd.Name() != "help" {
			t.Errorf("%s lacks a short help or an example", cmd.Name())
		}
		for _, sub := range cmd.Commands() {
			if sub.Short == "" || sub.Example == "" {
				t.Errorf("%s %s lacks a short help or an example", cmd.Name(), sub.Name())
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		bare bool
		want int
	}{
		{usagef("x"), false, exitUsage},
		{context.Canceled, false, exitInterrupted},
		{&dsec.Error{Class: "infrastructure", Reason: "internal"}, false, exitPlatform},
		{&dsec.Error{Class: "infrastructure", Reason: "internal"}, true, exitPlatform},
		{&dsec.Error{Class: "limit", Reason: "queue_full"}, false, exitFailed},
		{&dsec.Error{Class: "limit", Reason: "queue_full"}, true, exitNotRun},
		{&dsec.Error{Class: "user", Reason: "not_found", Object: "program nope"}, true, exitNoProgram},
		{&dsec.Error{Class: "user", Reason: "not_found", Object: "session x"}, true, exitNotRun},
		{errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "x", "y"), false, exitPlatform},
		{os.ErrNotExist, false, exitFailed},
	} {
		if got := (&Env{bare: c.bare}).code(c.err); got != c.want {
			t.Errorf("%v (bare %v): %d, want %d", c.err, c.bare, got, c.want)
		}
	}
	for _, c := range []struct {
		r    *dsec.Result
		want int
		note string
	}{
		{&dsec.Result{ExitCode: 3}, 3, ""},
		{&dsec.Result{ExitCode: -1, Signal: "SIGKILL"}, 137, "SIGKILL"},
		{&dsec.Result{ExitCode: -1, Signal: "SIGTERM"}, 143, "SIGTERM"},
		{&dsec.Result{ExitCode: -1, Signal: "SIGKILL", TimedOut: true}, exitTimedOut, "time-out"},
		{&dsec.Result{ExitCode: -1, Signal: "SIGKILL", Oom: true, Limit: "memory"}, 137, "out of memory"},
		{&dsec.Result{ExitCode: 1, Limit: "disk"}, 1, "limit of disk"},
	} {
		if note, code := ending(c.r); code != c.want || !strings.Contains(note, c.note) {
			t.Errorf("%v: %d %q", c.r, code, note)
		}
	}
}

func TestErrorsAreShown(t *testing.T) {
	err := &dsec.Error{Class: "limit", Reason: "queue_full", Object: "project a", Message: "the queue is full", Remedy: "try later"}
	var b bytes.Buffer
	(&Env{Err: &b}).report(err)
	if got := b.String(); got != "dsec: project a: the queue is full [limit, queue_full]\n  remedy: try later\n" {
		t.Errorf("%q", got)
	}
	b.Reset()
	(&Env{Err: &b, output: "json"}).report(err)
	var v struct{ Error failure }
	if json.Unmarshal(b.Bytes(), &v) != nil || v.Error.Class != "limit" || v.Error.Remedy != "try later" {
		t.Errorf("%q", b.String())
	}
}

func TestNoServer(t *testing.T) {
	code, _, stderr := call(t, Hooks{}, "", "ps")
	if code != exitPlatform || !strings.Contains(stderr, "[infrastructure, unavailable]") || !strings.Contains(stderr, "remedy:") {
		t.Errorf("%d %q", code, stderr)
	}
}

// A data directory that only root may look into is not one without a server.
func TestForbiddenDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "locked", "data")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Dir(dir), 0o700) })
	if os.Geteuid() == 0 { // of this thread alone, for looking up files: root is not kept out
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Fatal(err)
		}
		defer unix.Setfsuid(0)
	}
	var errs bytes.Buffer
	t.Setenv("DSEC_URL", "")
	code := (&Env{Out: io.Discard, Err: &errs}).run(t.Context(), []string{"ps", "--data-dir", dir})
	if got := errs.String(); code != exitFailed || !strings.Contains(got, "only root may look into it [user, forbidden]") || !strings.Contains(got, "DSEC_API_KEY") {
		t.Errorf("%d %q", code, got)
	}
}

func TestSpecLint(t *testing.T) {
	dir := t.TempDir()
	bad, good := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "good.yaml")
	os.WriteFile(bad, []byte("fs:\n  mounts:\n    - /var/run/docker.sock:/d\nseccomp: {allow_extra: [bpf]}\n"), 0o600)
	os.WriteFile(good, []byte("mem_limit: 64Mi\n"), 0o600)
	h := Hooks{NeverGranted: func() map[string]string { return map[string]string{"bpf": "it loads code"} }}
	code, out, _ := call(t, h, "", "spec", "lint", good)
	if code != 0 || !strings.Contains(out, "clean") {
		t.Errorf("%d %q", code, out)
	}
	code, out, _ = call(t, h, "", "spec", "lint", good, bad)
	for _, want := range []string{bad + ":3:7: error", "[escape-mount]", "bad.yaml:4:25: error", "[syscall-never-granted]"} {
		if code != exitFailed || !strings.Contains(out, want) {
			t.Errorf("%d %q lacks %q", code, out, want)
		}
	}
	code, out, _ = call(t, h, "mem_limt: 1\n", "spec", "lint", "-o", "json", "-")
	var r []lintResult
	if code != exitFailed || json.Unmarshal([]byte(out), &r) != nil || len(r) != 1 || r[0].Clean || r[0].Problems[0].Remedy != "did you mean mem_limit?" {
		t.Errorf("%d %q", code, out)
	}
	code, out, _ = call(t, h, "mem_limit: 1Gi\n  cpu_limit: 2\n", "spec", "lint", "-")
	if code != exitFailed || !strings.Contains(out, ": error: mapping values") {
		t.Errorf("%d %q", code, out)
	}
	code, out, _ = call(t, h, "", "spec", "show", good)
	if code != 0 || !strings.Contains(out, "writable_size_limit: 32Mi") || !strings.Contains(out, "rootfs: readonly") {
		t.Errorf("%d %q", code, out)
	}
	code, out, _ = call(t, h, "", "spec", "schema")
	if code != 0 || !json.Valid([]byte(out)) {
		t.Error("the schema is no JSON")
	}
}

func TestSessionFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	os.WriteFile(file, []byte("sandbox_spec: {mem_limit: 1Gi, pid_limit: 99}\n"), 0o600)
	t.Setenv("TOKEN", "hidden")
	e := &Env{}
	var f sessionFlags
	cmd := newCreate(e)
	cmd.ResetFlags()
	f.register(cmd)
	if err := cmd.ParseFlags([]string{"-f", file, "--mem", "64Mi", "--rootfs", "writable", "-e", "A=b=c", "--secret", "TOKEN", "-l", "x=y", "--writable", "/w,/v"}); err != nil {
		t.Fatal(err)
	}
	o, err := f.options(e)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := spec.Parse("", []byte(o.SpecYAML))
	if err != nil {
		t.Fatal(err)
	}
	s := doc.Sandbox
	if s.MemLimit != 64*spec.MiB || s.PidLimit != 99 || s.ReadOnlyRoot() || len(s.FS.WritableDirs) != 2 || s.CPULimit != 0 {
		t.Errorf("%s", o.SpecYAML)
	}
	if o.Env["A"] != "b=c" || o.Secrets["TOKEN"] != "hidden" || o.Labels["x"] != "y" {
		t.Errorf("%+v", o)
	}
	if text, err := specText(spec.Sandbox{}); err != nil || text != "" {
		t.Errorf("nothing said must be nothing sent: %q", text)
	}
}

// A limit of nothing is refused, and not taken for unsaid.
func TestSessionFlagsOfZero(t *testing.T) {
	for _, flag := range []string{"cpu", "mem", "pids", "disk", "max-idle", "max-runtime", "max-suspended"} {
		e := &Env{}
		var f sessionFlags
		cmd := newCreate(e)
		cmd.ResetFlags()
		f.register(cmd)
		if err := cmd.ParseFlags([]string{"--" + flag, "0"}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.options(e); err == nil || !strings.Contains(err.Error(), "--"+flag+" 0") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

func TestSides(t *testing.T) {
	for in, want := range map[string]side{
		"abc:/x/y": {"abc", "/x/y"}, "./a:b": {path: "./a:b"}, "/a:b": {path: "/a:b"}, "-": {path: "-"}, "file.txt:x": {path: "file.txt:x"}, "abc:x:y": {"abc", "x:y"},
	} {
		if got := parseSide(in); got != want {
			t.Errorf("%s: %+v", in, got)
		}
	}
	t.Chdir(t.TempDir())
	os.WriteFile("here.tar", nil, 0o600)
	wd, _ := os.Getwd()
	for in, want := range map[string][2]string{
		"python:3.12": {"python:3.12", ""}, "oci:busybox": {"busybox", ""}, "here.tar": {"", wd + "/here.tar"}, "tar:x.tar": {"", wd + "/x.tar"}, "/srv/root": {"", "/srv/root"}, "./no": {"", wd + "/no"},
	} {
		if image, path, err := source(in); err != nil || [2]string{image, path} != want {
			t.Errorf("%s: %q %q %v", in, image, path, err)
		}
	}
}

func TestTarThereAndBack(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	os.MkdirAll(filepath.Join(src, "d/e"), 0o755)
	os.WriteFile(filepath.Join(src, "d/e/f"), []byte("text"), 0o755)
	os.Symlink("e/f", filepath.Join(src, "d/l"))
	var b bytes.Buffer
	if err := writeTar(&b, src); err != nil {
		t.Fatal(err)
	}
	if err := extractTar(&b, dst); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dst, "d/l"))
	st, _ := os.Stat(filepath.Join(dst, "d/e/f"))
	if err != nil || string(data) != "text" || st.Mode().Perm() != 0o755 {
		t.Errorf("%q %v %v", data, st, err)
	}
}

// What comes out of a box is hostile: nothing of it lands outside.
func TestHostileTar(t *testing.T) {
	outside := t.TempDir()
	for name, hs := range map[string][]tar.Header{
		"dots":             {{Name: "../evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"through a link":   {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l/evil", Typeflag: tar.TypeReg, Mode: 0o644}},
		"hard link out":    {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}},
		"dir through link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l/evil/", Typeflag: tar.TypeDir, Mode: 0o755}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range hs {
			w.WriteHeader(&h)
		}
		w.Close()
		parent := t.TempDir()
		if err := extractTar(&b, filepath.Join(parent, "in")); err == nil {
			t.Errorf("%s: was accepted", name)
		}
		if _, err := os.Lstat(filepath.Join(parent, "evil")); err == nil {
			t.Errorf("%s: escaped", name)
		}
		if left, _ := os.ReadDir(outside); len(left) > 0 {
			t.Errorf("%s: escaped to %v", name, left)
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Name: "/abs", Typeflag: tar.TypeReg, Mode: 0o6755})
	w.WriteHeader(&tar.Header{Name: "dev", Typeflag: tar.TypeChar})
	w.Close()
	dir := t.TempDir()
	if err := extractTar(&b, dir); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(dir, "abs"))
	if err != nil || st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		t.Errorf("%v %v", st, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "dev")); err == nil {
		t.Error("a device was made")
	}
}

func TestRendering(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	rows := sessionRows([]*dsec.Info{{Id: "abc", Phase: "RUNNING", Template: "base@1", Labels: map[string]string{"b": "2", "a": "1"}, Created: timestamppb.New(now.Add(-90 * time.Second)), Reason: "x\x1b[31m"}}, now)
	var b bytes.Buffer
	table(&b, rows)
	want := "SESSION  PHASE    TEMPLATE  JOB  AGE    LABELS   REASON\nabc      RUNNING  base@1    -    1m30s  a=1,b=2  x·[31m\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 1 << 30: "1 GiB", 5 << 40: "5 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	ops := opRows([]*dsec.Operation{{OpId: "o", Running: true, Argv: []string{strings.Repeat("x", 99)}}, {OpId: "p", Survivors: 2, Result: &dsec.Result{ExitCode: 3, WallMs: 12}}}, now)
	if ops[1][1] != "running" || len([]rune(ops[1][5])) != 60 || ops[2][1] != "exit 3, 2 left" || ops[2][3] != "12ms" {
		t.Errorf("%q", ops)
	}
	b.Reset()
	e := &Env{Out: &b}
	if err := e.showChecks([]doctor.Check{{Name: "n", Group: "g", Status: doctor.Fail, Found: "f", Remedy: "r"}}); err != exitCode(exitFailed) || !strings.Contains(b.String(), "remedy: r") {
		t.Errorf("%v %q", err, b.String())
	}
	if got := progressLine(rollout.Progress{Total: 9, Done: 3, Running: 2, Pass: 3}, time.Second); !strings.HasPrefix(got, "3/9 done, 2 running: 3 pass") {
		t.Error(got)
	}
}

// guest is a box that knows three commands.
type guest struct {
	guestclient.API
	signals chan string
	got     guestproto.ExecRequest
}

func (g *guest) Start(_ context.Context, r guestproto.ExecRequest) (guestclient.ExecStream, error) {
	g.got = r
	if r.Argv[0] == "nope" {
		return nil, errdefs.Userf(errdefs.NotFound, "program nope", "check the name", "is not in the box")
	}
	return &events{g: g, r: r}, nil
}

func (g *guest) Signal(_ context.Context, _ string, s string, _ bool) error {
	g.signals <- s
	return nil
}

func (g *guest) WriteStdin(_ context.Context, _ string, off int64, b []byte, _ bool) (int64, error) {
	return off + int64(len(b)), nil
}

type events struct {
	g *guest
	r guestproto.ExecRequest
	n int
}

func (s *events) OpID() string { return s.r.OpID }
func (s *events) Close() error { return nil }
func (s *events) Recv() (guestproto.ExecEvent, error) {
	s.n++
	switch {
	case s.n == 1:
		return guestproto.ExecEvent{Kind: guestproto.EventOutput, Stream: guestproto.Stdout, Data: []byte("out\n")}, nil
	case s.n == 2:
		return guestproto.ExecEvent{Kind: guestproto.EventOutput, Stream: guestproto.Stderr, Data: []byte("err\n")}, nil
	case s.r.Argv[0] == "wait":
		<-s.g.signals
		return guestproto.ExecEvent{Kind: guestproto.EventExit, Result: &guestproto.Result{ExitCode: -1, Signal: "SIGINT"}}, nil
	}
	return guestproto.ExecEvent{Kind: guestproto.EventExit, Result: &guestproto.Result{ExitCode: 7, Stdout: guestproto.Output{Head: []byte("out\n"), Total: 4}}}, nil
}

func localHooks(g *guest, done *bool) Hooks {
	g.signals = make(chan string, 1)
	return Hooks{Local: func(context.Context, LocalOptions) (guestclient.API, func() error, error) {
		return g, func() error { *done = true; return nil }, nil
	}}
}

func TestRunLocal(t *testing.T) {
	var g guest
	done := false
	code, out, errs := call(t, localHooks(&g, &done), "", "run", "-e", "A=1", "--timeout", "5s", "prog", "-x", "--", "y")
	if code != 7 || out != "out\n" || errs != "err\n" || !done {
		t.Errorf("%d %q %q %v", code, out, errs, done)
	}
	if strings.Join(g.got.Argv, " ") != "prog -x -- y" || g.got.TimeoutMs != 5000 || g.got.StdinMode != guestproto.StdinNone {
		t.Errorf("%+v", g.got)
	}
	done = false
	code, _, errs = call(t, localHooks(&g, &done), "", "run", "nope")
	if code != exitNoProgram || !strings.Contains(errs, "[user, not_found]") || !done {
		t.Errorf("%d %q %v", code, errs, done)
	}
	code, out, _ = call(t, localHooks(&g, &done), "", "run", "-o", "json", "prog")
	var r struct {
		ExitCode int `json:"exit_code"`
		Stdout   struct{ Text string }
	}
	if code != 7 || json.Unmarshal([]byte(out), &r) != nil || r.ExitCode != 7 || r.Stdout.Text != "out\n" {
		t.Errorf("%d %q", code, out)
	}
	code, _, errs = call(t, Hooks{}, "", "run", "prog")
	if code != exitNotRun || !strings.Contains(errs, "needs a server") {
		t.Errorf("%d %q", code, errs)
	}
}

func TestInterruptReachesTheCommandAndCleansUp(t *testing.T) {
	var g guest
	done := false
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	t.Setenv("DSEC_URL", "")
	e := &Env{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, hooks: localHooks(&g, &done)}
	if code := e.run(ctx, []string{"--data-dir", t.TempDir(), "run", "wait"}); code != 130 || !done {
		t.Errorf("code %d, cleaned up %v", code, done)
	}
}

func TestCaptureKeepsBothEnds(t *testing.T) {
	c := newCapture(10)
	for _, s := range []string{"0123", "45678", "9abcdefghij", "klmnopqrstuvwxyz"} {
		if n, err := c.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	if o := c.output(); string(o.Head) != "01234" || string(o.Tail) != "vwxyz" || o.Total != 36 || o.Dropped != 26 {
		t.Errorf("%v", o)
	}
	c = newCapture(10)
	c.Write([]byte("0123456"))
	if o := c.output(); string(o.Head)+string(o.Tail) != "0123456" || o.Dropped != 0 {
		t.Errorf("%v", o)
	}
}
