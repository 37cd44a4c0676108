package spec

import (
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func rules(fs []Finding, sev Severity) string {
	var out []string
	for _, f := range fs {
		if f.Severity == sev {
			out = append(out, f.Rule)
		}
	}
	return strings.Join(out, " ")
}

func TestLintRules(t *testing.T) {
	for _, c := range []struct{ text, errors, warnings string }{
		{"name: fine", "", ""},
		{"fs: {mounts: ['/var/run/docker.sock:/var/run/docker.sock']}", "escape-mount", ""},
		{"fs: {mounts: ['/run/containerd/containerd.sock:/x']}", "escape-mount", ""},
		{"fs: {mounts: ['/:/host']}", "escape-mount", ""},
		{"fs: {mounts: ['/proc/1/root:/host']}", "escape-mount", ""},
		{"fs: {mounts: ['/sys:/host']}", "escape-mount", ""},
		{"fs: {mounts: ['/dev/sda:/disk']}", "escape-mount", ""},
		{"fs: {mounts: ['/etc/ssl:/ssl']}", "escape-mount", ""},
		{"fs: {mounts: ['/root/.ssh:/keys']}", "escape-mount", ""},
		{"fs: {mounts: ['/home/a:/a']}", "escape-mount", ""},
		{"fs: {mounts: ['/home/a/.ssh/x:/a']}", "escape-mount", ""},
		{"fs: {mounts: ['/home/a/data:/a']}", "", ""},
		{"fs: {mounts: ['/var/lib/docker/overlay2:/a']}", "escape-mount", ""},
		{"fs: {mounts: ['/tmp:/shared']}", "escape-mount", ""},
		{"fs: {mounts: ['/data/dsec/boxes:/a']}", "escape-mount", ""},
		{"fs: {mounts: ['/data:/a']}", "escape-mount", ""},
		{"fs: {mounts: ['/srv/sets/a:/data']}", "", ""},
		{"fs: {mounts: ['/srv/sets/a:/data:rw']}", "shared-writable", ""},
		{"fs: {mounts: [{source: /srv/a, target: /a, readonly: false}]}", "shared-writable", ""},
		{"user: root", "root-without-need", ""},
		{"user: '0'", "root-without-need", ""},
		{"user: root\nfs: {rootfs: writable}", "", ""},
		{"scheduler_config: {memory_overcommit_ratio: 1.2}", "memory-overcommit", ""},
		{"scheduler_config: {memory_overcommit_ratio: 1.0}", "", ""},
		{"scheduler_config: {cpu_overcommit_ratio: 5}", "", "cpu-overcommit"},
		{"seccomp: {allow_extra: [bpf, ptrace, move_mount]}", "syscall-never-granted syscall-never-granted", ""},
		{"network: {egress_policy: open}", "", "open-egress"},
		{"network: {egress_policy: whitelist}", "", "empty-whitelist"},
		{"network: {egress_policy: deny, allowed_ips: [10.0.0.1]}", "", "egress-list-unused"},
		{"network: {egress_policy: whitelist, allowed_domains: ['*.com'], allowed_ips: [0.0.0.0/0]}", "", "wide-domain wildcard-tunnel wide-range"},
		{"volumes: ['/var/run/docker.sock:/x']", "escape-mount", ""},
	} {
		doc, _ := Parse("f", []byte(c.text))
		fs := Lint(doc, LintOptions{DataDirs: []string{"/data/dsec"}, NeverGranted: map[string]string{"bpf": "w", "move_mount": "w"}})
		if e, w := rules(fs, Error), rules(fs, Warning); e != c.errors || w != c.warnings {
			t.Errorf("%s: errors %q warnings %q, want %q %q", c.text, e, w, c.errors, c.warnings)
		}
		for _, f := range fs {
			if f.Line == 0 || f.Remedy == "" || f.Message == "" {
				t.Errorf("%s: incomplete finding %+v", c.text, f)
			}
		}
	}
}

func TestCheckRefusesEscapes(t *testing.T) {
	for _, m := range []DataMount{{Source: "/var/run/docker.sock", Target: "/d"}, {Source: "/srv/a", Target: "/d", ReadOnly: new(bool)}} {
		s := Resolve(Sandbox{}, Sandbox{FS: FS{Mounts: []DataMount{m}}})
		if _, err := Check(&s); errdefs.From(err) == nil || errdefs.From(err).Reason != errdefs.Forbidden {
			t.Errorf("%+v: %v", m, err)
		}
	}
	sc := ResolveScheduler(Scheduler{MemoryOvercommitRatio: 2})
	if _, err := CheckScheduler(&sc); err == nil {
		t.Error("memory overcommit was accepted")
	}
	sc = ResolveScheduler(Scheduler{PriorityLevels: []PriorityLevel{{"high", 3}}})
	if fs, err := CheckScheduler(&sc); err != nil || rules(fs, Warning) != "priority-not-acting" {
		t.Errorf("priority weights: %v %v", fs, err)
	}
}

func TestResolveLaterWins(t *testing.T) {
	s := Resolve(
		Sandbox{MemLimit: GiB, PidLimit: 99, FS: FS{WritableDirs: []string{"/a", "/tmp"}}},
		Sandbox{PidLimit: 7, Seccomp: Seccomp{Profile: profileAlias}},
	)
	if s.MemLimit != GiB || s.PidLimit != 7 || len(s.FS.WritableDirs) != 1 || s.CPULimit != 2 || s.FS.WritableSizeLimit != 512*MiB || s.Seccomp.Profile != ProfileDefault {
		t.Errorf("%+v", s)
	}
	if s := Resolve(Sandbox{}, Sandbox{FS: FS{WritableDirs: []string{}}}); len(s.FS.WritableDirs) != 0 {
		t.Errorf("an empty list must clear: %v", s.FS.WritableDirs)
	}
	if s := Resolve(Sandbox{}, Sandbox{Runtime: "fake"}); Validate(&s) != nil {
		t.Error("the fake runtime of tests must validate")
	} else if _, err := Check(&s, "fake"); err != nil {
		t.Error(err)
	}
	c := Resolve(Sandbox{}, Sandbox{FS: FS{Mounts: []DataMount{{Source: "/srv/x", Target: "/data"}}}})
	if cl := c.Claim(); cl.Limits.Memory != 512<<20 || cl.Limits.Pids != 256 || cl.StoreSize != 256<<20 || cl.Store != "auto" || len(cl.Mounts) != 1 || cl.Seccomp.Profile != "default" {
		t.Errorf("claim: %+v", cl)
	}
}
