package control_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store"
	"github.com/dsec-platform/dsec/internal/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// boxes is a node that only keeps books: what a control plane test needs to see
// is which commands reach the node, and what it makes of refusals and delays.
type boxes struct {
	t      testing.TB
	events chan node.Event

	mu       sync.Mutex
	capacity int
	epoch    int
	live     map[string]*fakeBox
	created  map[string]int // creations that succeeded, by session
	claims   map[string]node.CreateRequest
	switched []node.NetworkChange

	onCreate  func(ctx context.Context, req node.CreateRequest) error
	onDestroy func(session string) error
	onSuspend func(session string) error
}

type fakeBox struct {
	node.Inventory
	idle   time.Duration
	making bool
}

var _ node.API = (*boxes)(nil)

func newBoxes(t testing.TB, capacity int) *boxes {
	return &boxes{t: t, events: make(chan node.Event, 1000), capacity: capacity,
		live: map[string]*fakeBox{}, created: map[string]int{}, claims: map[string]node.CreateRequest{}}
}

func (b *boxes) Create(ctx context.Context, req node.CreateRequest) (*node.Bound, error) {
	b.mu.Lock()
	if old := b.live[req.Session]; old != nil {
		b.mu.Unlock()
		b.t.Errorf("session %s was given a second box: %+v", req.Session, old)
		return nil, errdefs.Userf(errdefs.Conflict, req.Session, "", "it has a box")
	}
	if len(b.live) >= b.capacity {
		b.mu.Unlock()
		e := errdefs.Limitf(errdefs.NodeFull, "memory", "wait", "all of it is promised")
		e.Retryable = true
		return nil, e
	}
	b.epoch++
	box := &fakeBox{Inventory: node.Inventory{Session: req.Session, Box: fmt.Sprintf("box-%d", b.epoch), Version: req.Version, State: string(node.Live)}, making: true}
	b.live[req.Session], b.claims[req.Session] = box, req
	hook := b.onCreate
	b.mu.Unlock()
	var err error
	if hook != nil {
		err = hook(ctx, req)
	}
	if err == nil {
		err = ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		delete(b.live, req.Session)
		return nil, errdefs.From(err)
	}
	box.making = false
	b.created[req.Session]++
	return &node.Bound{Box: box.Box, ColdReason: "pool_off"}, nil
}

func (b *boxes) Destroy(_ context.Context, session, _ string) error {
	b.mu.Lock()
	hook := b.onDestroy
	b.mu.Unlock()
	if hook != nil {
		if err := hook(session); err != nil {
			return err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if box := b.live[session]; box != nil {
		if box.making {
			b.t.Errorf("session %s: destroyed while it is made", session)
		}
		delete(b.live, session)
		select {
		case b.events <- node.Event{Kind: node.CapacityFree}:
		default:
		}
	}
	return nil
}

func (b *boxes) state(session string, to node.State) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live[session] == nil {
		return errdefs.Userf(errdefs.NotFound, session, "", "no box")
	}
	b.live[session].State = string(to)
	return nil
}

func (b *boxes) Suspend(_ context.Context, session string) error {
	b.mu.Lock()
	hook := b.onSuspend
	b.mu.Unlock()
	if hook != nil {
		if err := hook(session); err != nil {
			return err
		}
	}
	return b.state(session, node.Suspended)
}

func (b *boxes) Resume(_ context.Context, session string) error { return b.state(session, node.Live) }

func (b *boxes) Acquire(_ context.Context, session string) (guestclient.API, func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	box := b.live[session]
	if box == nil || box.State != string(node.Live) && box.State != string(node.Audit) {
		return nil, nil, errdefs.Userf(errdefs.Conflict, session, "", "its box is %v", box)
	}
	return nil, func() {}, nil
}

func (b *boxes) Inventory(context.Context) ([]node.Inventory, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []node.Inventory
	for _, box := range b.live {
		out = append(out, box.Inventory)
	}
	return out, nil
}

func (b *boxes) SwitchNetwork(_ context.Context, _ string, c node.NetworkChange) (node.NetworkState, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.switched = append(b.switched, c)
	return node.NetworkState{Phase: c.Phase}, nil
}

func (b *boxes) CheckNetwork(_ context.Context, _, host string, port uint16, _ policy.Protocol) (policy.Result, error) {
	return policy.Result{Host: host, Port: port}, nil
}

func (b *boxes) Inspect(_ context.Context, session string) (*node.Inspect, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	box := b.live[session]
	if box == nil {
		return nil, errdefs.Userf(errdefs.NotFound, session, "", "no box")
	}
	return &node.Inspect{Inventory: box.Inventory, IdleFor: box.idle, RunningOps: 1, ColdReason: "pool_off"}, nil // the op is in the background
}

func (b *boxes) Stats(context.Context) node.Stats { return node.Stats{} }
func (b *boxes) Events() <-chan node.Event        { return b.events }
func (b *boxes) SetDraining(bool)                 {}

func (b *boxes) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.live)
}

// templates has one template, "base", and counts who holds it.
type templates struct {
	template.Store // nil: nothing else of it is used
	mu             sync.Mutex
	held           int
}

func (s *templates) Resolve(_ context.Context, ref string) (*template.Template, runtime.Root, func(), error) {
	if name, _, _ := strings.Cut(ref, "@"); name != "base" {
		return nil, runtime.Root{}, nil, errdefs.Userf(errdefs.NotFound, "template "+ref, "import it", "there is no such template")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held++
	release := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held--
	})
	return &template.Template{Name: "base", Version: "0123456789ab", Env: []string{"PATH=/bin", "A=template"}}, runtime.Root{Template: "base@0123456789ab"}, release, nil
}

func (s *templates) holds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

// world is a control plane with what it stands on; restart replaces the control plane.
type world struct {
	*control.Control
	t         testing.TB
	path      string
	store     *store.Store
	node      *boxes
	templates *templates
	cfg       control.Config
}

func openStore(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "dsec.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newWorld(t testing.TB, capacity int, sched spec.Scheduler) *world {
	t.Helper()
	w := &world{t: t, path: filepath.Join(t.TempDir(), "dsec.db"), node: newBoxes(t, capacity), templates: &templates{}}
	s, err := store.Open(t.Context(), w.path)
	if err != nil {
		t.Fatal(err)
	}
	w.store = s
	w.cfg = control.Config{Store: s, Node: w.node, Templates: w.templates, Scheduler: sched, RetryMin: time.Millisecond, RetryMax: 10 * time.Millisecond, Housekeeping: 20 * time.Millisecond}
	w.start()
	return w
}

func (w *world) start() {
	w.t.Helper()
	w.Control = control.New(w.cfg)
	if err := w.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// restart is what a daemon's death and rebirth is to the control plane.
func (w *world) restart() {
	w.t.Helper()
	w.Close()
	w.start()
}

// end stops everything and checks that nothing is left.
func (w *world) end() {
	w.t.Helper()
	if _, err := w.Stop(context.Background(), control.DefaultProject, control.Selector{All: true}, "end"); err != nil {
		w.t.Error(err)
	}
	w.nothingLeft()
	w.Close()
	if err := w.store.Close(); err != nil {
		w.t.Error(err)
	}
}

func (w *world) nothingLeft() {
	w.t.Helper()
	live, err := w.store.Live(context.Background())
	p, perr := w.store.Project(context.Background(), control.DefaultProject)
	g := w.Gauges()
	if err != nil || perr != nil || len(live) != 0 || p.Live != 0 || w.node.count() != 0 || g.Active+g.Waiting != 0 {
		w.t.Errorf("left: %d rows, quota %+v, %d boxes, gauges %+v, %v %v", len(live), p, w.node.count(), g, err, perr)
	}
	// A create lets go of its template after it has answered.
	for end := time.Now().Add(5 * time.Second); w.templates.holds() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Errorf("the template is still held %d times", w.templates.holds())
			return
		}
	}
}

func request(count int) control.CreateRequest {
	s := spec.Resolve(spec.Sandbox{}, spec.Sandbox{})
	return control.CreateRequest{Count: count, Digest: "digest", Spec: s, Job: "job", Labels: map[string]string{"l": "v"}}
}

func (w *world) create(req control.CreateRequest) []control.CreateResult {
	w.t.Helper()
	res, err := w.Create(w.t.Context(), control.DefaultProject, req)
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

// one makes one session that runs.
func (w *world) one() *control.Session {
	w.t.Helper()
	res := w.create(request(1))
	if len(res) != 1 || res[0].Err != nil || res[0].Session.Phase != "RUNNING" {
		w.t.Fatalf("got %+v", res)
	}
	return res[0].Session
}

func (w *world) get(id string) *control.Session {
	w.t.Helper()
	s, err := w.Get(context.Background(), control.DefaultProject, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) wait(id, phase string) *control.Session {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := w.Wait(ctx, control.DefaultProject, id, phase)
	if err != nil || s.Phase != phase {
		w.t.Fatalf("session %s: %+v %v, want %s", id, s, err, phase)
	}
	return s
}

// eventually waits for what happens in the background.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
