package control_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/fake"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store"
)

// machine is a control plane on a real node, whose boxes are not isolated.
type machine struct {
	*control.Control
	t         *testing.T
	dir       string
	rt        *fake.Runtime
	node      *node.Node
	store     *store.Store
	templates *templates
	hooks     fake.Hooks
}

// noGuest: these tests make and end boxes, and speak to none.
func noGuest(context.Context, net.Conn) (guestclient.API, error) {
	return nil, errors.New("nobody speaks to guests here")
}

func (m *machine) boot() {
	m.t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	m.rt = fake.New(filepath.Join(m.dir, "boxes"))
	m.rt.SetHooks(m.hooks)
	var err error
	m.node, err = node.New(node.Config{DataDir: filepath.Join(m.dir, "node"), Runtimes: map[string]runtime.Runtime{fake.Name: m.rt}, Memory: 8 << 30, CPU: 1000, Logger: quiet, Connect: noGuest})
	if err != nil {
		m.t.Fatal(err)
	}
	if err := m.node.Start(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	if m.store, err = store.Open(m.t.Context(), filepath.Join(m.dir, "dsec.db")); err != nil {
		m.t.Fatal(err)
	}
	m.Control = control.New(control.Config{Store: m.store, Node: m.node, Templates: m.templates, Scheduler: spec.ResolveScheduler(spec.Scheduler{}), Logger: quiet, RetryMin: time.Millisecond})
	if err := m.Start(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

// crash cuts the node off from its boxes first, so that nothing in flight can be undone.
func (m *machine) crash() {
	m.t.Helper()
	m.rt.Sever()
	m.Close()
	_ = m.node.Close()
	if err := m.store.Close(); err != nil {
		m.t.Error(err)
	}
}

// TestCrashesOfTheWholeDaemon: through crashes at random moments under load, every create that was
// answered is answered the same again, no session is infrastructure's failure
// but for those that had no box yet, and nothing is left in the end.
func TestCrashesOfTheWholeDaemon(t *testing.T) {
	m := &machine{t: t, dir: t.TempDir(), templates: &templates{}}
	m.hooks.Create = func(ctx context.Context, _ runtime.Config) error {
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		return nil
	}
	m.boot()
	req := request(0)
	req.Spec.Runtime = fake.Name
	answered := map[string]control.CreateRequest{}
	ids := map[string]string{}
	var mu sync.Mutex
	for round := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for n := 0; ctx.Err() == nil && n < 4; n++ {
					req := req
					req.Count = 1
					req.Key = string(rune('a'+round)) + string(rune('a'+worker)) + string(rune('a'+n))
					res, err := m.Create(ctx, control.DefaultProject, req)
					if err == nil && res[0].Err == nil {
						mu.Lock()
						answered[req.Key], ids[req.Key] = req, res[0].Session.ID
						mu.Unlock()
					}
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		m.crash()
		cancel()
		wg.Wait()
		m.boot()
		mu.Lock()
		for key, req := range answered {
			res := m.must(req)
			if res.Err != nil || res.Session.ID != ids[key] || res.Session.Phase != "RUNNING" {
				t.Errorf("round %d, key %s: %+v, error %v, was %s", round, key, res.Session, res.Err, ids[key])
			}
		}
		mu.Unlock()
	}
	inv, err := m.node.Inventory(t.Context())
	if err != nil || len(inv) < len(answered) {
		t.Fatalf("%d boxes for %d sessions: %v", len(inv), len(answered), err)
	}
	if _, err := m.Stop(t.Context(), control.DefaultProject, control.Selector{All: true}, ""); err != nil {
		t.Fatal(err)
	}
	live, err := m.store.Live(t.Context())
	st := m.node.Stats(t.Context())
	if err != nil || len(live) != 0 || st.Boxes != 0 || st.MemPromised != 0 {
		t.Fatalf("left: %d rows, %+v, %v", len(live), st, err)
	}
	m.Close()
	_ = m.node.Close()
	_ = m.store.Close()
}

func (m *machine) must(req control.CreateRequest) control.CreateResult {
	m.t.Helper()
	res, err := m.Create(m.t.Context(), control.DefaultProject, req)
	if err != nil {
		m.t.Fatal(err)
	}
	return res[0]
}

// TestNodeIsFull: 8 GiB hold sixteen boxes of 512 MiB; the rest wait, in order.
func TestNodeIsFull(t *testing.T) {
	m := &machine{t: t, dir: t.TempDir(), templates: &templates{}}
	m.boot()
	defer m.crash()
	req := request(40)
	req.Spec.Runtime = fake.Name
	req.NoWait = true
	res, err := m.Create(t.Context(), control.DefaultProject, req)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "sixteen run", func() bool { return m.Gauges().Phases["RUNNING"] == 16 && m.Gauges().Waiting == 24 })
	for stopped := 0; stopped < 40; {
		var ids []string
		for _, r := range res {
			if s, err := m.Get(t.Context(), control.DefaultProject, r.Session.ID); err != nil {
				t.Fatal(err)
			} else if s.Phase == "RUNNING" {
				ids = append(ids, s.ID)
			}
		}
		if len(ids) == 0 {
			continue
		}
		out, err := m.Stop(t.Context(), control.DefaultProject, control.Selector{IDs: ids}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range out {
			if r.Err != nil || r.Session.Phase != "COMPLETED" {
				t.Fatalf("got %+v", r)
			}
		}
		stopped += len(ids)
	}
}

// TestBoxKilled: PID 1 dies on a healthy node.
func TestBoxKilled(t *testing.T) {
	m := &machine{t: t, dir: t.TempDir(), templates: &templates{}}
	m.boot()
	defer m.crash()
	req := request(1)
	req.Spec.Runtime = fake.Name
	s := m.must(req).Session
	m.rt.Box(s.Box).Kill()
	got, err := m.Wait(t.Context(), control.DefaultProject, s.ID, "FAILED")
	if err != nil || got.Error == nil || got.Error.Class != errdefs.Policy || got.Error.Reason != errdefs.BoxTampered || got.Reclaim != "acked" {
		t.Fatalf("got %+v %v", got, err)
	}
}
