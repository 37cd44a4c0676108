package e2e

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

//go:embed testdata/forbidden.py
var forbiddenPy string

// attack is what a learner does to its box. It must not reach another box, the
// node or PID 1, and must never earn an infrastructure error.
type attack struct {
	name    string
	script  string // bash
	root    bool   // as the box's root; else as user
	write   bool   // on a writable root
	timeout time.Duration
	want    func(r *dsec.Result) error // of the attack itself; nil: any outcome
	wrecks  bool                       // the box may be unusable afterwards (its own programs are gone)
}

func outHas(s string) func(*dsec.Result) error {
	return func(r *dsec.Result) error {
		if out := string(dsec.Output(r.GetStdout())); !strings.Contains(out, s) {
			return fmt.Errorf("stdout lacks %q:\n%s\nstderr:\n%s", s, out, dsec.Output(r.GetStderr()))
		}
		return nil
	}
}

// onlyDone wants that the attack found or changed nothing that it would have told.
func onlyDone(r *dsec.Result) error {
	if out := strings.TrimSpace(string(dsec.Output(r.GetStdout()))); out != "done" {
		return fmt.Errorf("%s\nstderr: %s", out, dsec.Output(r.GetStderr()))
	}
	return nil
}

func timedOut(r *dsec.Result) error {
	if !r.GetTimedOut() {
		return fmt.Errorf("it was not timed out: %v", r)
	}
	return nil
}

func limitIs(limits ...string) func(*dsec.Result) error {
	return func(r *dsec.Result) error {
		for _, l := range limits {
			if r.GetLimit() == l || (l == "memory" && r.GetOom()) {
				return nil
			}
		}
		return fmt.Errorf("limit %q, want one of %v; exit %d %s; stderr %s", r.GetLimit(), limits, r.GetExitCode(), r.GetSignal(), dsec.Output(r.GetStderr()))
	}
}

var attacks = []attack{
	{name: "rm -rf / on a writable root", script: `rm -rf --no-preserve-root / 2>/dev/null; echo gone`, root: true, write: true, want: outHas("gone"), wrecks: true},
	{name: "rm -rf / on a read-only root", script: `rm -rf --no-preserve-root / 2>/dev/null; echo tried`, root: true, want: outHas("tried")},
	{name: "fork bomb", script: `b() { b | b & }; b; sleep 30`, timeout: 2 * time.Second},
	{name: "fork bomb that hides by setsid", script: `python3 -c '
import os
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass'`, timeout: 2 * time.Second, want: timedOut},
	{name: "thread bomb", script: `python3 -c '
import threading, time
try:
    while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
except Exception as e: print("refused", e, flush=True); import os; os._exit(0)'`, timeout: 10 * time.Second, want: outHas("refused")},
	{name: "memory at once", script: `exec python3 -c 'b = bytearray(1 << 30); b[::4096] = b"x" * len(b[::4096])'`, timeout: 20 * time.Second, want: limitIs("memory")},
	{name: "memory slowly", script: `exec python3 -c '
import time
x = []
while True: x.append(bytearray(1 << 20)); time.sleep(0.005)'`, timeout: 30 * time.Second, want: limitIs("memory")},
	{name: "tmpfs to the limit", script: `dd if=/dev/zero of=/tmp/x bs=1M 2>&1; dd if=/dev/zero of=/dev/shm/x bs=1M 2>&1; rm -f /tmp/x /dev/shm/x`, timeout: 20 * time.Second},
	{name: "workspace to the limit", script: `dd if=/dev/zero of=/workspace/x bs=1M 2>&1; rm -f /workspace/x; echo done`, timeout: 20 * time.Second},
	{name: "a million files", script: `cd /workspace; python3 -c '
import os
n = 0
try:
    for i in range(1000000): open(str(i), "w").close(); n = i
except OSError as e: print("stopped", e)'; find /workspace -type f -delete`, timeout: 30 * time.Second},
	{name: "yes", script: `yes`, timeout: time.Second, want: func(r *dsec.Result) error {
		if !r.GetTimedOut() || r.GetStdout().GetDropped() == 0 || len(r.GetStdout().GetHead())+len(r.GetStdout().GetTail()) > 2<<20 {
			return fmt.Errorf("timed out %v, dropped %d", r.GetTimedOut(), r.GetStdout().GetDropped())
		}
		return nil
	}},
	{name: "write to every descriptor", script: `for f in /proc/[0-9]*/fd/*; do (timeout 1 sh -c "echo x > $f") 2>/dev/null; done; ls -l /proc/1/fd 2>&1 | head -3; echo done`, root: true, timeout: 20 * time.Second, want: outHas("done")},
	{name: "PID 1's memory, environment and descriptors", script: `for f in mem environ maps exe fd/0 fd/3 cwd/x root/proc/1/mem; do head -c1 /proc/1/$f >/dev/null 2>&1 && echo "READ $f"; done; echo done`, root: true,
		want: func(r *dsec.Result) error {
			if strings.Contains(string(dsec.Output(r.GetStdout())), "READ") {
				return errors.New(string(dsec.Output(r.GetStdout())))
			}
			return nil
		}},
	{name: "signals to every pid", script: `for s in INT TERM HUP QUIT STOP KILL SEGV USR1 ILL ABRT; do kill -$s 1; done 2>/dev/null; for p in $(ls /proc | grep '^[0-9]'); do [ $p = $$ ] || kill -9 $p 2>/dev/null; done; echo done`, root: true, want: outHas("done")},
	{name: "kill -9 -1", script: `kill -9 -1; sleep 5`, root: true, timeout: 10 * time.Second},
	{name: "queue of real-time signals to PID 1", script: `python3 -c '
import os
for i in range(20000):
    for s in (10, 12, 34, 35, 64):
        try: os.kill(1, s)
        except OSError: pass
print("done")'`, root: true, timeout: 30 * time.Second, want: outHas("done")},
	{name: "platform's sockets and files", script: `cat /proc/net/unix | tail -n +2 | grep -v '@/tmp/\.X11' | grep -E '/|@' ; find / -xdev \( -type s -o -name '*dsec*' \) -not -path '/proc/*' 2>/dev/null; env | grep -i dsec; echo done`, root: true, want: onlyDone},
	{name: "overwriting its own programs", script: `cp /bin/true /tmp/t; for f in /bin/bash /bin/sh /lib64/ld-linux-x86-64.so.2 /etc/passwd /usr/bin/env; do cat /dev/urandom | head -c 5000 > /tmp/junk; cp --remove-destination /tmp/junk $f; done; echo done`, root: true, write: true, want: outHas("done"), wrecks: true},
	{name: "/etc/passwd that is huge and odd", script: `python3 -c '
open("/etc/passwd","wb").write(b"root:x:0:0::/:/bin/bash\n" + b"\xff:\x00:::" * 2000000)'; echo done`, root: true, write: true, want: outHas("done"), wrecks: true},
	{name: "grep through /proc and /sys", script: `grep -r x /proc /sys >/dev/null 2>&1; echo done`, root: true, timeout: 5 * time.Second},
	{name: "device nodes", script: `mknod /tmp/sda b 8 0 2>/dev/null && echo MADE; mknod /tmp/mem c 1 1 2>/dev/null && echo MADE; mknod /workspace/kmsg c 1 11 2>/dev/null && echo MADE; for d in /dev/*; do echo $d; done; echo done`, root: true,
		want: func(r *dsec.Result) error {
			out := string(dsec.Output(r.GetStdout()))
			if strings.Contains(out, "MADE") || strings.Contains(out, "/dev/vda") || strings.Contains(out, "/dev/kmsg") {
				return errors.New(out)
			}
			return nil
		}},
	{name: "/dev for everybody", script: `chmod 000 /dev/null 2>/dev/null && echo CHANGED; rm -f /dev/null 2>/dev/null && echo CHANGED; touch /dev/x 2>/dev/null && echo CHANGED; mount -o remount,rw /dev 2>/dev/null && echo CHANGED; echo done`, root: true, want: onlyDone},
	{name: "set-uid program", script: `cp /usr/bin/python3 /workspace/suid && chown 0:0 /workspace/suid && chmod 4755 /workspace/suid; setpriv --reuid 1000 --clear-groups /workspace/suid -c 'import os; print("euid", os.geteuid())'`, root: true, want: outHas("euid 1000")},
	{name: "hard links and renames over the limit", script: `ln /etc/passwd /workspace/p 2>/dev/null && echo LINKED; mv /etc/passwd /workspace/ 2>/dev/null && echo MOVED; echo done`, root: true, want: onlyDone},
	{name: "clock", script: `date -s 2001-01-01 2>&1; python3 -c 'import time; time.clock_settime(time.CLOCK_REALTIME, 1)' 2>&1; [ $(date +%Y) -gt 2020 ] && echo kept`, root: true, want: outHas("kept")},
	// Its root may volunteer PID 1 to the OOM killer, which harms nobody but the box; it must not shield anything from it.
	{name: "host settings", script: `for f in /proc/sysrq-trigger /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sys/kernel/printk /proc/sys/kernel/threads-max /proc/irq/default_smp_affinity; do ( : >> $f ) 2>/dev/null && echo "OPENED $f"; done
		for p in self 1; do (echo -500 > /proc/$p/oom_score_adj) 2>/dev/null; [ $(cat /proc/$p/oom_score_adj) -ge 0 ] || echo "SHIELDED $p"; done; echo done`, root: true, want: onlyDone},
	{name: "starving PID 1", script: `python3 -c '
import os
for f in (lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)), lambda: os.setpriority(os.PRIO_PROCESS, 1, 19), lambda: os.sched_setaffinity(1, {0})):
    try: f()
    except OSError: pass
os.sched_setaffinity(0, {0})
for _ in range(8):
    if os.fork() == 0:
        while True: pass
while True: pass'`, root: true, timeout: 2 * time.Second, want: timedOut},
	{name: "network ways out", script: `python3 -c '
import socket, time
t = time.time()
for fam, addr in ((socket.AF_INET, ("169.254.169.254", 80)), (socket.AF_INET, ("10.0.0.1", 22)), (socket.AF_INET, ("1.1.1.1", 53)), (socket.AF_INET6, ("2606:4700::1111", 443))):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        s = socket.socket(fam, kind); s.settimeout(5)
        try: s.connect(addr); s.send(b"x"); print("REACHED", addr)
        except OSError as e: pass
for name in ("example.com", "localhost.localdomain.example"):
    try: socket.getaddrinfo(name, 80); print("RESOLVED", name)
    except OSError: pass
try: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); print("RAW")
except OSError: pass
try: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0); print("PACKET")
except OSError: pass
print("quick" if time.time() - t < 4 else "slow")'`, root: true, timeout: 40 * time.Second, want: func(r *dsec.Result) error {
		if out := strings.TrimSpace(string(dsec.Output(r.GetStdout()))); out != "quick" {
			return fmt.Errorf("%s %s", out, dsec.Output(r.GetStderr()))
		}
		return nil
	}},
	{name: "core dump", script: `ulimit -c unlimited; cd /workspace; python3 -c 'import os; os.abort()'; ls; echo done`, want: outHas("done")},
	{name: "a process that ignores everything", script: `trap '' TERM INT HUP; (setsid nohup sh -c 'trap "" TERM; while :; do sleep 1; done' &) ; while :; do sleep 1; done`, timeout: time.Second, want: timedOut},
	{name: "200,000 environment variables and arguments", script: `x=$(python3 -c 'print("a "*2000000)'); /bin/echo $x | wc -c; echo done`, want: outHas("done")},
}

func TestHostileLearner(t *testing.T) {
	tpl := shared.debian(t)
	victim := shared.session(t, dsec.CreateOptions{Template: tpl})
	daemonPid := shared.Pid()
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			spec := "mem_limit: 96Mi\npid_limit: 64\ncpu_limit: 1\n"
			if a.write {
				spec += "fs: {rootfs: {readonly: false}, writable_size_limit: 64Mi}\n"
			}
			s := shared.session(t, dsec.CreateOptions{Template: tpl, SpecYAML: spec})
			ctx, cancel := context.WithTimeout(t.Context(), patience(time.Minute))
			defer cancel()
			cmd := dsec.Command{Script: a.script, Timeout: a.timeout}
			if cmd.Timeout == 0 {
				cmd.Timeout = 15 * time.Second
			}
			if cmd.Timeout > 5*time.Second { // not what is meant to run into it
				cmd.Timeout = patience(cmd.Timeout)
			}
			if a.root {
				cmd.User = "root"
			}
			r, err := s.Run(ctx, cmd)
			if err != nil {
				t.Fatalf("the op itself failed: %v", err)
			}
			if a.want != nil {
				if err := a.want(r); err != nil {
					t.Error(err)
				}
			}
			noInfrastructure(t, dsec.FromWire(r.GetError()))
			// The box answers, or (when it wrecked its own programs) refuses with a user's error.
			r, err = s.Run(ctx, dsec.Command{Argv: []string{"/bin/true"}, Timeout: patience(10 * time.Second)})
			noInfrastructure(t, err)
			if err == nil && !a.wrecks && (r.GetExitCode() != 0 || r.GetError() != nil) {
				t.Errorf("afterwards true ended with %v", r)
			}
			if err != nil && !a.wrecks {
				t.Errorf("afterwards: %v", err)
			}
			if rc, err := s.ReadFile(ctx, "/etc/hostname", dsec.ReadOptions{}); err == nil {
				rc.Close()
			} else {
				noInfrastructure(t, err)
			}
			if r, err := victim.Run(ctx, dsec.Command{Argv: []string{"/bin/echo", "here"}}); err != nil || r.GetExitCode() != 0 {
				t.Errorf("another box suffered: %v %v", r, err)
			}
			if shared.Pid() != daemonPid {
				t.Error("the daemon died")
			}
		})
	}
}

// noInfrastructure fails the test if an agent earned an infrastructure error.
func noInfrastructure(t *testing.T, err error) {
	t.Helper()
	var e *dsec.Error
	if errors.As(err, &e) && e != nil && e.Class == dsec.ClassInfrastructure {
		t.Errorf("an agent earned an infrastructure error: %v", e)
	}
}

// Every forbidden system call, tried by the box's root.
func TestForbiddenCalls(t *testing.T) {
	s := shared.session(t, dsec.CreateOptions{Template: shared.debian(t)})
	for _, user := range []string{"root", "user"} {
		r, err := s.Run(t.Context(), dsec.Command{Argv: []string{"python3", "-"}, Stdin: []byte(forbiddenPy), User: user, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var got []struct {
			Call    string
			Allowed bool
			Errno   string
		}
		if err := json.Unmarshal(dsec.Output(r.GetStdout()), &got); err != nil {
			t.Fatalf("%v: exit %d %s\n%s%s", err, r.GetExitCode(), r.GetSignal(), dsec.Output(r.GetStdout()), dsec.Output(r.GetStderr()))
		}
		if len(got) < 40 {
			t.Errorf("only %d calls were tried", len(got))
		}
		for _, c := range got {
			if c.Allowed {
				t.Errorf("%s: %s was allowed (%s)", user, c.Call, c.Errno)
			}
		}
	}
}

// Files that the platform writes and reads are resolved in the box, whatever was planted there.
func TestPlantedSymlinks(t *testing.T) {
	before := hostSum(t)
	s := shared.session(t, dsec.CreateOptions{Template: shared.debian(t), SpecYAML: "fs: {rootfs: {readonly: false}}"})
	ctx := t.Context()
	if _, err := s.Run(ctx, dsec.Command{User: "root", Script: `
		ln -s /etc/passwd /workspace/link; ln -s ../../../../../../etc/shadow /workspace/up; ln -s / /workspace/rootdir
		ln -s /proc/1/root/etc/hostname /workspace/p1; mkfifo /workspace/fifo; ln -sfn /workspace /workspace/loop`}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/workspace/link", "/workspace/up", "/workspace/rootdir/etc/passwd", "/workspace/../../../etc/passwd", "/workspace/p1", "/proc/1/root/etc/passwd", "/workspace/loop/loop/loop/x"} {
		_, err := s.WriteFile(ctx, p, strings.NewReader("planted\n"), dsec.WriteOptions{User: "root"})
		noInfrastructure(t, err)
		rc, err := s.ReadFile(ctx, p, dsec.ReadOptions{User: "root"})
		noInfrastructure(t, err)
		if err == nil {
			rc.Close()
		}
	}
	short, cancel := context.WithTimeout(ctx, patience(10*time.Second))
	defer cancel()
	if rc, err := s.ReadFile(short, "/workspace/fifo", dsec.ReadOptions{}); err == nil {
		rc.Close()
		t.Error("a FIFO was read as a file")
	}
	if rc, err := s.Tar(ctx, "/workspace"); err == nil {
		buf := make([]byte, 1<<16)
		for {
			if _, err := rc.Read(buf); err != nil {
				break
			}
		}
		rc.Close()
	}
	if after := hostSum(t); after != before {
		t.Error("a file of the host changed")
	}
}

func hostSum(t *testing.T) string {
	t.Helper()
	h := sha256.New()
	for _, f := range []string{"/etc/passwd", "/etc/shadow", "/etc/hostname", "/etc/hosts"} {
		b, _ := os.ReadFile(f)
		h.Write(b)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// A box cannot reach servers of the host, by address or abstract socket.
func TestHostServersAreOutOfReach(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	abstract, err := net.Listen("unix", "@dsec-e2e-canary")
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := shared.session(t, dsec.CreateOptions{})
	r, err := s.Run(t.Context(), dsec.Command{User: "root", Timeout: 20 * time.Second, Argv: []string{"python3", "-c", `
import socket, sys
for fam, addr in ((socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))), (socket.AF_UNIX, "\0dsec-e2e-canary")):
    s = socket.socket(fam); s.settimeout(3)
    try: s.connect(addr); print("REACHED", addr)
    except OSError: pass
`, port}})
	if err != nil {
		t.Fatal(err)
	}
	if out := string(dsec.Output(r.GetStdout())); out != "" || r.GetExitCode() != 0 {
		t.Errorf("exit %d: %s %s", r.GetExitCode(), out, dsec.Output(r.GetStderr()))
	}
}
