package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// A claim may differ from the pooled box in everything but template, runtime and root mode.
func TestPoolClaims(t *testing.T) {
	data := t.TempDir()
	if err := os.Chmod(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(data+"/file", []byte("payload"), 0o644); err != nil {
		t.Fatal(err)
	}
	e := startOwn(t, "--config", configFile(t, "scheduler_config: {sandbox_pool: {min_idle: 3, max_idle: 6}}\ndata_mounts: ["+data+"]"))
	pooled := func() int32 {
		st, err := e.c.Nodes.GetStats(t.Context(), &dsecv1.GetStatsRequest{})
		if err != nil {
			t.Fatal(dsec.AsError(err))
		}
		return st.GetPooled()
	}
	filled := func() { t.Helper(); eventually(t, "the pool is filled", func() bool { return pooled() >= 3 }) }
	first := e.session(t, dsec.CreateOptions{})
	if i := first.Info(); i.GetPooled() != (i.GetColdReason() == "") {
		t.Errorf("pooled %v, cold reason %q", i.GetPooled(), i.GetColdReason())
	}
	filled()
	for _, c := range []struct {
		name   string
		o      dsec.CreateOptions
		script string
		want   string
	}{
		{"as it is", dsec.CreateOptions{}, `id -u; pwd`, "1000\n/workspace\n"},
		{"environment and secrets", dsec.CreateOptions{Env: map[string]string{"A": "1"}, Secrets: map[string]string{"B": "pooled-needle"}}, `echo $A $B`, "1 pooled-needle\n"},
		{"memory", dsec.CreateOptions{SpecYAML: "mem_limit: 48Mi"}, `python3 -c 'b = bytearray(100 << 20)'; echo $?`, "137\n"},
		{"pids", dsec.CreateOptions{SpecYAML: "pid_limit: 10"}, `python3 -c '
import os, signal
children = []
try:
    while True:
        pid = os.fork()
        if pid == 0: signal.pause()
        children.append(pid)
except OSError: print(len(children) < 10)
for pid in children: os.kill(pid, 9)'`, "True\n"},
		{"user and host name", dsec.CreateOptions{SpecYAML: "user: root\nhostname: mine"}, `id -u; uname -n`, "0\nmine\n"},
		{"seccomp", dsec.CreateOptions{SpecYAML: "seccomp: {allow_extra: [ptrace]}"}, `python3 -c '
import ctypes
print(ctypes.CDLL(None).ptrace(0, 0, 0, 0))'`, "0\n"},
		{"mounts", dsec.CreateOptions{SpecYAML: "fs: {mounts: [\"" + data + ":/data\"]}"}, `cat /data/file; touch /data/x 2>/dev/null || echo kept`, "payloadkept\n"},
		{"writable directories", dsec.CreateOptions{SpecYAML: "fs: {writable_dirs: [/workspace, /srv/mine], writable_size_limit: 3Mi}"}, `echo x > /srv/mine/f && cat /srv/mine/f; dd if=/dev/zero of=/workspace/f bs=1M count=9 2>/dev/null; stat -c %s /workspace/f | awk '{print ($1 <= 3 * 1048576)}'; (touch /home/user/f) 2>/dev/null || echo kept`, "x\n1\nkept\n"},
		{"sizes of tmpfs", dsec.CreateOptions{SpecYAML: "fs: {tmp_size_limit: 2Mi}"}, `dd if=/dev/zero of=/tmp/f bs=1M count=9 2>/dev/null; stat -c %s /tmp/f | awk '{print ($1 <= 2 * 1048576)}'`, "1\n"},
		{"new privileges", dsec.CreateOptions{SpecYAML: "new_privileges: true"}, `grep NoNewPrivs /proc/self/status`, "NoNewPrivs:\t0\n"},
		{"rlimits", dsec.CreateOptions{SpecYAML: "rlimits: {nofile: 77}"}, `ulimit -n`, "77\n"},
		{"code", dsec.CreateOptions{Code: tarOf(t, map[string]string{"f": "code"})}, `cat /workspace/f`, "code"},
	} {
		t.Run(c.name, func(t *testing.T) {
			filled()
			s := e.session(t, c.o)
			if !s.Info().GetPooled() {
				t.Errorf("it was made cold: %s", s.Info().GetColdReason())
			}
			if r := mustRun(t, s, dsec.Command{Script: c.script}); stdout(r) != c.want {
				t.Errorf("%q, want %q; stderr %q", stdout(r), c.want, dsec.Output(r.GetStderr()))
			}
			// What did not differ is as in a box that was made for the session.
			if r := mustRun(t, s, dsec.Command{Argv: []string{"cat", "/proc/1/comm"}}); strings.TrimSpace(stdout(r)) == "" {
				t.Error("no PID 1")
			}
		})
	}
	for name, o := range map[string]dsec.CreateOptions{"no_pool": {NoPool: true}, "first_of_key": {Template: e.debian(t)}} {
		if s := e.session(t, o); s.Info().GetPooled() || s.Info().GetColdReason() != name {
			t.Errorf("%s: pooled %v, reason %q", name, s.Info().GetPooled(), s.Info().GetColdReason())
		}
	}
	st, err := e.c.Nodes.GetStats(t.Context(), &dsecv1.GetStatsRequest{})
	if err != nil {
		t.Fatal(dsec.AsError(err))
	}
	if st.GetPoolHits() < 10 || st.GetPoolMisses() < 2 || st.GetColdReasons()["no_pool"] != 1 {
		t.Errorf("stats %v", st)
	}
	if f := grepTree(t, e.DataDir(), "pooled-needle"); f != "" {
		t.Errorf("%s holds a secret", f)
	}
	if strings.Contains(e.Log(), "pooled-needle") {
		t.Error("the log holds a secret")
	}
	if f := inProcesses(e.DataDir(), "pooled-needle"); f != "" {
		t.Errorf("%s holds a secret", f)
	}
}

// A writable root is pooled with the store that was asked for last.
func TestPoolOfWritableRoots(t *testing.T) {
	e := startOwn(t, "--config", configFile(t, "scheduler_config: {sandbox_pool: {min_idle: 1, max_idle: 2}}"))
	tpl := e.debian(t)
	root := func(size string) *dsec.Session {
		s := e.session(t, dsec.CreateOptions{Template: tpl, SpecYAML: fmt.Sprintf("fs: {rootfs: {readonly: false}, writable_size_limit: %s}", size)})
		if r := mustRun(t, s, dsec.Command{User: "root", Script: `echo x > /etc/mine && cat /etc/mine && df -k --output=size /etc | tail -1 | tr -d ' '`}); !strings.HasPrefix(stdout(r), "x\n") {
			t.Errorf("%s: %q %q", size, stdout(r), dsec.Output(r.GetStderr()))
		}
		return s
	}
	root("32Mi")
	eventually(t, "one is taken from the pool", func() bool { return root("32Mi").Info().GetPooled() })
	if s := root("48Mi"); s.Info().GetPooled() || (s.Info().GetColdReason() != "other_store" && s.Info().GetColdReason() != "pool_empty") {
		t.Errorf("another size: pooled %v, %q", s.Info().GetPooled(), s.Info().GetColdReason())
	}
	eventually(t, "one of the new size is taken", func() bool { return root("48Mi").Info().GetPooled() })
}
