package spec

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func mustRead(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSeedsParseAndLintClean(t *testing.T) {
	both := string(mustRead(t, "seed_sandbox.yaml"))
	sched := string(mustRead(t, "seed_scheduler.yaml"))
	for name, text := range map[string]string{
		"apart sandbox": both, "apart scheduler": sched, "one document": both + sched, "two documents": both + "---\n" + sched,
	} {
		doc, err := Parse(name, []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if fs := Lint(doc, LintOptions{}); !Clean(fs) {
			t.Errorf("%s is not clean: %v", name, fs)
		}
	}
	doc, _ := Parse("", []byte(both+sched))
	s := doc.Sandbox
	if s.MemLimit != 2*GiB || s.CPULimit != 2 || !s.ReadOnlyRoot() || len(s.FS.WritableDirs) != 2 || s.Seccomp.AllowExtra[4] != "socket" || s.Session.HeartbeatInterval != 15 {
		t.Errorf("sandbox read wrong: %+v", s)
	}
	if c := doc.Scheduler; c.QueueLength != 2000 || c.PriorityLevels[0] != (PriorityLevel{"high", 3}) || c.SandboxPool.IdleScaleUpStep != 20 {
		t.Errorf("scheduler read wrong: %+v", c)
	}
}

func TestSeedIsRefusedAtCreateUntilNative(t *testing.T) {
	text := string(mustRead(t, "seed_sandbox.yaml"))
	check := func(text string) error {
		doc, err := Parse("s", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		s := Resolve(Sandbox{}, *doc.Sandbox)
		_, err = Check(&s)
		return err
	}
	wantField := func(err error, field string) {
		t.Helper()
		e := errdefs.From(err)
		if e == nil || e.Reason != errdefs.Unsupported || e.Object != "field "+field || e.Remedy == "" {
			t.Errorf("want a refusal of %s, got %v", field, err)
		}
	}
	wantField(check(text), "runtime")
	text = strings.Replace(text, "gvisor ", "native ", 1)
	if err := check(text); err != nil {
		t.Errorf("native must start: %v", err)
	}
}

func TestBareMappings(t *testing.T) {
	doc, err := Parse("", []byte("mem_limit: 16Mi\nuser: root\n"))
	if err != nil || doc.Sandbox == nil || doc.Sandbox.MemLimit != 16*MiB {
		t.Errorf("bare sandbox: %v", err)
	}
	doc, err = Parse("", []byte(`{"queue_length": 7}`))
	if err != nil || doc.Scheduler == nil || doc.Scheduler.QueueLength != 7 {
		t.Errorf("bare scheduler: %v", err)
	}
}

func TestEveryProblemIsNamed(t *testing.T) {
	_, err := Parse("bad.yaml", mustRead(t, "bad.yaml"))
	if got, want := err.Error()+"\n", string(mustRead(t, "bad.want")); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	e := errdefs.From(err)
	if e.Class != errdefs.User || e.Reason != errdefs.InvalidArgument || !strings.Contains(e.Object, "bad.yaml:3:3") {
		t.Errorf("typed error is %+v", e)
	}
}

func TestImpossibleValues(t *testing.T) {
	for text, field := range map[string]string{
		"mem_limit: 1Mi":                               "mem_limit",
		"mem_limit: 0":                                 "mem_limit",
		"mem_limit: 9000000Ti":                         "mem_limit",
		"pid_limit: 1":                                 "pid_limit",
		"cpu_limit: 0":                                 "cpu_limit",
		"cpu_limit: .inf":                              "cpu_limit",
		"cpu_limit: -1":                                "cpu_limit",
		"runtime: gvizor":                              "runtime",
		"name: 'a/b'":                                  "name",
		"name: ''":                                     "name",
		"user: 'a b'":                                  "user",
		"hostname: UPPER":                              "hostname",
		"fs: {writable_dirs: [workspace]}":             "fs.writable_dirs[0]",
		"fs: {writable_dirs: [/a/../b]}":               "fs.writable_dirs[0]",
		"fs: {writable_dirs: [/]}":                     "fs.writable_dirs[0]",
		"fs: {writable_dirs: [/proc/x]}":               "fs.writable_dirs[0]",
		"fs: {writable_dirs: [/dev]}":                  "fs.writable_dirs[0]",
		"fs: {writable_dirs: [/usr]}":                  "fs.writable_dirs[0]",
		"fs: {writable_dirs: [/a, /a/b]}":              "fs.writable_dirs[1]",
		"fs: {writable_dirs: [/a, /a]}":                "fs.writable_dirs[1]",
		"fs: {writable_dirs: [/a], mounts: ['/x:/a']}": "fs.mounts[0].target",
		"fs: {mounts: ['x:/a']}":                       "fs.mounts[0].source",
		"fs: {mounts: ['/x']}":                         "fs.mounts[0]",
		"fs: {writable_store: ram}":                    "fs.writable_store",
		"network: {egress_policy: allow}":              "network.egress_policy",
		"network: {allowed_domains: [a.com]}":          "network.egress_policy",
		"network: {egress_policy: whitelist, allowed_domains: ['https://a.com']}": "network.allowed_domains[0]",
		"network: {egress_policy: whitelist, allowed_ips: [300.1.1.1]}":           "network.allowed_ips[0]",
		"seccomp: {profile: none}":                                                          "seccomp.profile",
		"seccomp: {allow_extra: ['rm -rf']}":                                                "seccomp.allow_extra[0]",
		"session: {max_idle_seconds: 0}":                                                    "session.max_idle_seconds",
		"scheduler_config: {queue_length: 0}":                                               "scheduler_config.queue_length",
		"scheduler_config: {memory_overcommit_ratio: .nan}":                                 "scheduler_config.memory_overcommit_ratio",
		"scheduler_config: {sandbox_pool: {min_idle: 5, max_idle: 2}}":                      "scheduler_config.sandbox_pool.max_idle",
		"scheduler_config: {priority_levels: [{name: a, weight: 0}]}":                       "scheduler_config.priority_levels[0].weight",
		"scheduler_config: {priority_levels: [{name: a, weight: 1}, {name: a, weight: 1}]}": "scheduler_config.priority_levels[1].name",
	} {
		_, err := Parse("f", []byte(text))
		ps, ok := AsProblems(err)
		if !ok {
			t.Errorf("%s: want a problem, got %v", text, err)
			continue
		}
		if p := ps[0]; p.Field != field || p.Line != 1 || p.Column == 0 || p.Remedy == "" {
			t.Errorf("%s: got %+v, want field %s", text, p, field)
		}
	}
}

func TestTexts(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "comment": "# nothing\n", "list": "- a\n", "scalar": "hello", "tab": "a:\n\t- b", "open quote": "name: \"x",
		"twice": "sandbox_spec: {}\n---\nsandbox_spec: {}", "other key": "sandbox_spec: {}\nsandbx: {}", "null": "sandbox_spec:", "typo of the top key": "sandbox_spc: {name: x}",
		"complex key": "? [a]\n: b", "merge": "sandbox_spec:\n  <<: {name: a}",
	} {
		if _, err := Parse("f", []byte(text)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := Parse("f", make([]byte, MaxDocument+1)); err == nil {
		t.Error("a huge text was accepted")
	}
}

func TestRootFSAndMountForms(t *testing.T) {
	for _, text := range []string{"fs: {rootfs: writable}", "fs: {rootfs: {readonly: false}}"} {
		doc, err := Parse("", []byte(text))
		if err != nil || doc.Sandbox.ReadOnlyRoot() {
			t.Errorf("%s: %v", text, err)
		}
	}
	var fs FS
	if err := json.Unmarshal([]byte(`{"rootfs":{"readonly":false},"mounts":["/a:/b:ro"]}`), &fs); err != nil || *fs.RootFS.ReadOnly || fs.Mounts[0].Target != "/b" {
		t.Errorf("JSON forms: %+v %v", fs, err)
	}
}

func TestBytesRoundTrip(t *testing.T) {
	for in, want := range map[string]Bytes{"0": 0, "1023": 1023, "16Mi": 16 * MiB, "1.5Gi": 1536 * MiB, "2Ti": 2 * TiB, "512Ki": 512 * KiB} {
		if b, err := ParseBytes(in); err != nil || b != want {
			t.Errorf("%s: %d, %v", in, b, err)
		}
	}
	for _, in := range []string{"", "Mi", "-1", "1M", "1 Gi", "1.3", "0.0000001Ti", "9223372036854775807Ki", "1e3", "0x10", "1.Gi"} {
		if b, err := ParseBytes(in); err == nil {
			t.Errorf("%q was read as %d", in, b)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := Bytes(rapid.Int64Min(0).Draw(t, "bytes"))
		if got, err := ParseBytes(b.String()); err != nil || got != b {
			t.Fatalf("%d → %s → %d, %v", b, b, got, err)
		}
	})
}

func drawSpec(t *rapid.T) Sandbox {
	b := rapid.Bool().Draw(t, "ro")
	size := func(name string) Bytes { return Bytes(rapid.Int64Range(int64(4*MiB), int64(TiB)).Draw(t, name)) }
	s := Sandbox{
		Name:     rapid.StringMatching(`[a-z][a-z0-9_.-]{0,20}`).Draw(t, "name"),
		Runtime:  rapid.SampledFrom(runtimes).Draw(t, "runtime"),
		CPULimit: rapid.Float64Range(0.01, 64).Draw(t, "cpu"),
		MemLimit: size("mem"), PidLimit: rapid.IntRange(2, 9999).Draw(t, "pids"),
		User:    rapid.SampledFrom([]string{"", "root", "user", "1000", "_apt"}).Draw(t, "user"),
		Network: Network{EgressPolicy: rapid.SampledFrom(egresses).Draw(t, "egress")},
		Session: Session{MaxIdleSeconds: rapid.IntRange(0, 9999).Draw(t, "idle")},
		Rlimits: Rlimits{NoFile: rapid.Uint64Range(16, 4096).Draw(t, "nofile")},
	}
	if rapid.Bool().Draw(t, "fs") {
		s.FS = FS{RootFS: RootFS{ReadOnly: &b}, WritableDirs: []string{"/w"}, WritableSizeLimit: size("w"), Mounts: []DataMount{{Source: "/srv/x", Target: "/data"}}}
	}
	return s
}

func TestSpecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		y, err := yaml.Marshal(map[string]Sandbox{sandboxKey: s})
		if err != nil {
			t.Fatal(err)
		}
		doc, err := Parse("y", y)
		if err != nil {
			t.Fatalf("%v\n%s", err, y)
		}
		if !reflect.DeepEqual(*doc.Sandbox, s) {
			t.Fatalf("yaml changed it:\n%+v\n%+v\n%s", s, *doc.Sandbox, y)
		}
		j, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if doc, err = Parse("j", j); err != nil || !reflect.DeepEqual(*doc.Sandbox, s) {
			t.Fatalf("json text changed it: %v\n%s", err, j)
		}
		var back Sandbox
		if err := json.Unmarshal(j, &back); err != nil || !reflect.DeepEqual(back, s) {
			t.Fatalf("json changed it: %v\n%s", err, j)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, n := range []string{"seed_sandbox.yaml", "seed_scheduler.yaml", "bad.yaml"} {
		f.Add(mustRead(f, n))
	}
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("fs: &f {mounts: [*f]}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := Parse("f", data)
		if err != nil {
			var e *errdefs.Error
			if !errors.As(err, &e) || e.Class != errdefs.User {
				t.Fatalf("untyped error %v", err)
			}
		}
		if doc != nil {
			Lint(doc, LintOptions{})
		}
	})
}

func TestStrict(t *testing.T) {
	type file struct {
		Scheduler Scheduler `yaml:"scheduler_config"`
		Dirs      []string  `yaml:"dirs"`
		Reserve   Bytes     `yaml:"reserve"`
	}
	var f file
	if err := Strict("f.yaml", []byte("scheduler_config: {queue_length: 3}\ndirs: [/a]\nreserve: 2Gi\n"), &f); err != nil {
		t.Fatal(err)
	}
	if f.Scheduler.QueueLength != 3 || len(f.Dirs) != 1 || f.Reserve != 2<<30 {
		t.Errorf("%+v", f)
	}
	if err := Strict("f.yaml", []byte("# nothing\n"), &f); err != nil || f.Reserve != 2<<30 {
		t.Errorf("an empty text: %v, %+v", err, f)
	}
	err := Strict("f.yaml", []byte("dirs: []\nscheduler_config:\n  queue_lenght: 3\nreserv: 1\n"), &f)
	ps, ok := AsProblems(err)
	if !ok || len(ps) != 2 || ps[0].Line != 3 || !strings.Contains(ps[0].Remedy, "queue_length") || ps[1].Field != "reserv" {
		t.Errorf("%v", err)
	}
}
