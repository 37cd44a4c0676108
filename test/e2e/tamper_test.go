package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/launch"
	"github.com/dsec-platform/dsec/internal/runtime/native"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// guests are the PID 1s of the daemon's boxes, as the host sees them.
func (e *env) guests() []int { return launch.Guests(e.DataDir(), native.CgroupName(e.DataDir())) }

// aloneBox makes a session and finds its PID 1 from outside.
func aloneBox(t *testing.T, e *env) (*dsec.Session, int) {
	t.Helper()
	s := e.session(t, dsec.CreateOptions{})
	mustRun(t, s, dsec.Command{Argv: []string{"true"}})
	pids := e.guests()
	if len(pids) != 1 {
		t.Fatalf("%d guests", len(pids))
	}
	return s, pids[0]
}

func tampered(t *testing.T, what string, err error) {
	t.Helper()
	var e *dsec.Error
	if !errors.As(err, &e) || e == nil || e.Class != dsec.ClassPolicy || e.Reason != "box_tampered" {
		t.Errorf("%s: %v", what, err)
	}
}

// A PID 1 that dies on a healthy node ends its session, as the box's fault.
func TestKilledGuest(t *testing.T) {
	e := startOwn(t, "--no-pool")
	s, pid := aloneBox(t, e)
	running := make(chan error, 1)
	go func() {
		r, err := s.Run(context.WithoutCancel(t.Context()), dsec.Command{Argv: []string{"sleep", "1000"}})
		if err == nil {
			err = fmt.Errorf("ended with %v", r)
		}
		running <- err
	}()
	eventually(t, "the op runs", func() bool { ops, err := s.Ops(t.Context()); return err == nil && len(ops) == 2 })
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	tampered(t, "the running op", <-running)
	eventually(t, "the session ends", func() bool { phase, _ := phaseOf(t, s); return phase == dsec.Failed })
	_, why := phaseOf(t, s)
	tampered(t, "the session", why)
	_, err := s.Sh(t.Context(), "true")
	tampered(t, "a later op", err)
	if info, err := s.Get(t.Context()); err != nil || info.GetReclaim() != "acked" {
		t.Errorf("%v %v", info, err)
	}
}

// A guest that lives and is silent is found out, by an op that runs and by one that comes.
func TestStalledGuest(t *testing.T) {
	t.Parallel()
	e := startOwn(t, "--no-pool")
	s, pid := aloneBox(t, e)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience(2*time.Minute))
	defer cancel()
	_, err := s.Sh(ctx, "true")
	tampered(t, "an op", err)
	// The session follows by itself, after the node has given the guest another chance.
	info, err := s.Wait(ctx, dsec.Failed)
	if err != nil {
		t.Fatal(err)
	}
	tampered(t, "the session", dsec.FromWire(info.GetError()))
}

// What the box's root does against PID 1 and the platform's helpers: the box
// answers, or says that it was tampered with; it is never the platform's failure.
func TestRootEarnsNoInfrastructureError(t *testing.T) {
	tpl := shared.debian(t)
	for name, script := range map[string]string{
		"stops everything":                  `kill -STOP -1; for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = 1 ] || [ $p = $$ ] || kill -STOP $p; done 2>/dev/null`,
		"kills everything, again and again": `(setsid sh -c 'while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -9 $p; done; done' &) 2>/dev/null; sleep 0.3`,
		"stops everything, again and again": `(setsid sh -c 'while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -STOP $p; done; done' &) 2>/dev/null; sleep 0.3`,
		"fork bomb of root":                 `b() { b | b & }; b; sleep 0.5`,
		"everything is full":                `for f in /tmp/x /dev/shm/x /workspace/x /home/user/x; do dd if=/dev/zero of=$f bs=1M; done 2>/dev/null; true`,
		"everything is forbidden":           `chmod 000 / /tmp /workspace /home/user /dev/shm /proc 2>/dev/null; chown 77777:77777 /workspace 2>/dev/null; rm -rf /workspace /home/user 2>/dev/null; true`,
		"all memory": `(setsid python3 -c '
x = []
while True:
    try: x.append(bytearray(1 << 16))
    except MemoryError: pass' &); sleep 0.5`,
		"orphans without end": `(setsid sh -c 'while :; do (true &); done' &); sleep 0.5`,
		"output of many ops":  `for i in 1 2 3 4 5 6 7 8; do yes & yes >&2 & done; sleep 0.5`,
		"odd names": `cd /workspace; python3 -c '
import os
for i in range(2000): open(b"/workspace/" + bytes([1 + i % 254]) * (1 + i % 200) + str(i).encode(), "w").close() if b"/"[0] != 1 + i % 254 else None
d = "/workspace"
for i in range(500):
    d = "d"
    os.mkdir(d); os.chdir(d)'`,
		"sockets and pipes in the way": `rm -rf /workspace/*; python3 -c '
import socket, os
s = socket.socket(socket.AF_UNIX); s.bind("/workspace/s"); os.mkfifo("/workspace/p"); os.symlink("/proc/1/fd/0", "/workspace/l"); os.symlink("p", "/workspace/q")'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shared.session(t, dsec.CreateOptions{Template: tpl, SpecYAML: "mem_limit: 64Mi\npid_limit: 48\ncpu_limit: 1\nuser: root"})
			// The helper for files is up when the attack begins.
			if _, err := s.WriteFile(t.Context(), "/workspace/before", strings.NewReader("x"), dsec.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience(20*time.Second))
			defer cancel()
			ours := func(what string, err error) {
				t.Helper()
				var e *dsec.Error
				if errors.As(err, &e) && e != nil && e.Class == dsec.ClassInfrastructure {
					t.Errorf("%s earned %v", what, e)
				}
			}
			background := dsec.Command{Script: script, Background: true}
			_, err := s.Run(ctx, background)
			ours("the attack", err)
			time.Sleep(700 * time.Millisecond)
			for range 3 {
				r, err := s.Run(ctx, dsec.Command{Argv: []string{"/bin/true"}, Timeout: patience(3 * time.Second)})
				ours("exec", err)
				ours("exec", asErr(r.GetError()))
				short, cancel := context.WithTimeout(ctx, patience(3*time.Second))
				_, err = s.WriteFile(short, "/workspace/after", strings.NewReader("x"), dsec.WriteOptions{})
				ours("write", err)
				if rc, err := s.ReadFile(short, "/etc/hostname", dsec.ReadOptions{}); err == nil {
					rc.Close()
				} else {
					ours("read", err)
				}
				for _, err := range s.ListDir(short, "/workspace", 3) {
					ours("list", err)
				}
				if rc, err := s.Tar(short, "/workspace"); err == nil {
					rc.Close()
				} else {
					ours("tar", err)
				}
				for _, p := range []string{"p", "s", "l", "q"} {
					if rc, err := s.ReadFile(short, "/workspace/"+p, dsec.ReadOptions{}); err == nil {
						rc.Close()
					} else {
						ours("read of "+p, err)
					}
				}
				cancel()
			}
			ours("suspend", s.Suspend(ctx))
			ours("resume", s.Resume(ctx))
			if _, err := s.Ops(ctx); err != nil {
				ours("list of ops", err)
			}
			if err := s.Stop(t.Context(), "attacked"); err != nil {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

func asErr(w *dsecv1.Error) error {
	if w == nil {
		return nil
	}
	return dsec.FromWire(w)
}

// Out of memory is told apart from a kill, warned of before, and counted.
func TestMemoryIsWarnedOf(t *testing.T) {
	warned, killed := shared.metric(t, "dsec_boxes_memory_warnings_total"), shared.metric(t, "dsec_boxes_oom_kills_total")
	s := shared.session(t, dsec.CreateOptions{SpecYAML: "mem_limit: 64Mi\nfs: {writable_size_limit: 1Mi}"})
	r := mustRun(t, s, dsec.Command{Argv: []string{"python3", "-c", `
import time
x = [bytearray(1 << 20) for _ in range(51)]
time.sleep(2.5)`}})
	if r.GetExitCode() != 0 || r.GetOom() {
		t.Errorf("below the limit: %v", r)
	}
	eventually(t, "a warning is counted", func() bool { return shared.metric(t, "dsec_boxes_memory_warnings_total") > warned })
	if n := shared.metric(t, "dsec_boxes_oom_kills_total"); n != killed {
		t.Errorf("%v kills were counted too early", n-killed)
	}
	r = mustRun(t, s, dsec.Command{Argv: []string{"python3", "-c", `b = bytearray(1 << 28)`}})
	if !r.GetOom() || r.GetLimit() != "memory" || r.GetSignal() != "SIGKILL" {
		t.Errorf("out of memory: %v", r)
	}
	eventually(t, "the kill is counted", func() bool { return shared.metric(t, "dsec_boxes_oom_kills_total") > killed })
	insp, err := s.Inspect(t.Context())
	if err != nil || insp.GetBox().GetUsage().GetMemoryPeak() < 50<<20 || insp.GetBox().GetUsage().GetOomKills() == 0 {
		t.Errorf("%v %v", insp.GetBox().GetUsage(), err)
	}
	if r := mustRun(t, s, dsec.Command{Script: `kill -9 $$`}); r.GetOom() || r.GetLimit() != "" {
		t.Errorf("a plain kill: %v", r)
	}
}
