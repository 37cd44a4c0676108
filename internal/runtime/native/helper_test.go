package native

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// machine is a runtime on a data directory of its own.
type machine struct {
	*Runtime
	t    *testing.T
	dir  string
	root runtime.Root
	seq  atomic.Int64
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if why := cannotRun(); why != "" {
		t.Skip(why)
	}
	m := &machine{t: t, dir: dataDir(t), root: busyboxRoot(t)}
	m.start()
	t.Cleanup(func() {
		if _, err := m.Sweep(context.Background(), func(string) bool { return false }); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *machine) start() {
	m.t.Helper()
	r, err := New(Options{DataDir: m.dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		m.t.Fatal(err)
	}
	m.Runtime = r
}

func (m *machine) config(change ...func(*runtime.Config)) runtime.Config {
	c := runtime.Config{
		ID: fmt.Sprintf("b%d", m.seq.Add(1)), Root: m.root,
		Claim: runtime.Claim{
			Limits: runtime.Limits{Memory: 64 << 20, CPU: 1, Pids: 64}, Hostname: "box", User: "user",
			WritableDirs: []string{"/workspace"}, StoreSize: 16 << 20, TmpSize: 8 << 20,
		},
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

func (m *machine) create(change ...func(*runtime.Config)) *box {
	m.t.Helper()
	b, err := m.Create(ctx(m.t), m.config(change...))
	if err != nil {
		m.t.Fatalf("create: %v", err)
	}
	return b.(*box)
}

func ctx(t *testing.T) context.Context {
	c, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return c
}

func guestOf(t *testing.T, b runtime.Box) *guestclient.Client {
	t.Helper()
	conn, err := b.Dial(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	g, err := guestclient.New(ctx(t), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

var opSeq atomic.Int64

// run runs a script as the user and gives its result.
func run(t *testing.T, g guestclient.API, user, script string) *guestproto.Result {
	t.Helper()
	res, err := g.Run(ctx(t), guestproto.ExecRequest{
		OpID: fmt.Sprintf("op-%d", opSeq.Add(1)), Argv: []string{"/bin/sh", "-c", script}, User: user, TimeoutMs: 20000,
	})
	if err != nil {
		t.Fatalf("%q: %v", script, err)
	}
	if res.Error != nil {
		t.Fatalf("%q: %+v", script, res.Error)
	}
	return res
}

// out gives the standard output of a script that must succeed.
func out(t *testing.T, g guestclient.API, user, script string) string {
	t.Helper()
	res := run(t, g, user, script)
	if res.ExitCode != 0 {
		t.Fatalf("%q: exit %d %s: %s%s", script, res.ExitCode, res.Signal, res.Stdout.Head, res.Stderr.Head)
	}
	return strings.TrimSpace(string(res.Stdout.Head))
}

// refused runs a script that must fail.
func refused(t *testing.T, g guestclient.API, user, script string) {
	t.Helper()
	if res := run(t, g, user, script); res.ExitCode == 0 && res.Signal == "" {
		t.Errorf("as %s, %q was not refused: %s%s", user, script, res.Stdout.Head, res.Stderr.Head)
	}
}

// background starts a script and returns when it runs.
func background(t *testing.T, g guestclient.API, script string) {
	t.Helper()
	_, err := g.Run(ctx(t), guestproto.ExecRequest{
		OpID: fmt.Sprintf("op-%d", opSeq.Add(1)), Argv: []string{"/bin/sh", "-c", script}, Background: true,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func itoa(n int) string { return strconv.Itoa(n) }
