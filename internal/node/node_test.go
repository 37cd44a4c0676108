package node

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/fake"
	"github.com/dsec-platform/dsec/internal/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a node on a fake machine; restart and crash make the next node on it.
type rig struct {
	t      testing.TB
	dir    string
	config Config
	rt     *fake.Runtime
	node   *Node
	guests *guests
}

const (
	mib     = 1 << 20
	waitFor = 10 * time.Second
)

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), guests: &guests{ops: map[string][]guestproto.OpInfo{}}}
	r.config = Config{
		DataDir: r.dir + "/node", Memory: 1 << 30, CPU: 1000, Connect: r.guests.connect,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Spares: -1, // a test that counts boxes sees its own
	}
	for _, f := range change {
		f(&r.config)
	}
	r.start()
	t.Cleanup(func() {
		_ = r.node.Close()
		r.clear()
	})
	return r
}

// start makes the next node on the rig's machine.
func (r *rig) start() {
	r.t.Helper()
	r.rt = fake.New(r.dir + "/boxes")
	c := r.config
	c.Runtimes = map[string]runtime.Runtime{fake.Name: r.rt}
	n, err := New(c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.node = n
	if err := n.Start(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

// clear ends the boxes, which live on without a node.
func (r *rig) clear() {
	if _, err := fake.New(r.dir+"/boxes").Sweep(context.Background(), func(string) bool { return false }); err != nil {
		r.t.Errorf("clear: %v", err)
	}
}

// crash ends the node as kill -9 does, and closes what is left of it.
func (r *rig) crash() {
	r.rt.Sever()
	_ = r.node.Close()
}

func withPool(p spec.Pool) func(*Config) {
	return func(c *Config) { c.Scheduler.SandboxPool = p }
}

func request(session string) CreateRequest {
	return CreateRequest{
		Session: session, Version: 1, Project: "p", Root: runtime.Root{Template: "base@1"},
		Claim: runtime.Claim{Limits: runtime.Limits{Memory: 16 * mib, CPU: 1, Pids: 64}},
	}
}

func (r *rig) create(session string) *Bound {
	r.t.Helper()
	b, err := r.node.Create(context.Background(), request(session))
	if err != nil {
		r.t.Fatalf("create %s: %v", session, err)
	}
	return b
}

func (r *rig) destroy(session string) {
	r.t.Helper()
	if err := r.node.Destroy(context.Background(), session, "test"); err != nil {
		r.t.Fatalf("destroy %s: %v", session, err)
	}
}

// states gives session → state.
func (r *rig) states() map[string]State {
	r.t.Helper()
	list, err := r.node.Inventory(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]State{}
	for _, i := range list {
		out[i.Session] = State(i.State)
	}
	return out
}

// event waits for the next event of this kind.
func (r *rig) event(kind EventKind) Event {
	r.t.Helper()
	deadline := time.After(waitFor)
	for {
		select {
		case e := <-r.node.Events():
			if e.Kind == kind {
				return e
			}
		case <-deadline:
			r.t.Fatalf("no event %s", kind)
		}
	}
}

// empty asserts that nothing is left of any box, and nothing is promised.
func (r *rig) empty() {
	r.t.Helper()
	if ids := r.rt.IDs(); len(ids) != 0 {
		r.t.Errorf("boxes left: %v", ids)
	}
	if st := r.node.Stats(context.Background()); st.MemPromised != 0 || st.CPUPromised != 0 || st.Boxes != 0 {
		r.t.Errorf("promises left: %+v", st)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitFor); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", waitFor, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// guests answer what the node itself asks of a guest, so that virtual time can be used.
// What goes through real guests is in the integration tests.
type guests struct {
	mu   sync.Mutex
	ops  map[string][]guestproto.OpInfo // by the connection's box; "" for all
	fail error
	code []byte
}

func (g *guests) set(ops ...guestproto.OpInfo) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ops[""] = ops
}

func (g *guests) connect(_ context.Context, c net.Conn) (guestclient.API, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// A goroutine that waits for a socket would keep virtual time from passing.
	_ = c.Close()
	if g.fail != nil {
		return nil, g.fail
	}
	return &stubGuest{all: g, done: make(chan struct{})}, nil
}

type stubGuest struct {
	guestclient.API
	all  *guests
	once sync.Once
	done chan struct{}
}

func (s *stubGuest) Done() <-chan struct{} { return s.done }

func (s *stubGuest) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

func (s *stubGuest) List(context.Context) ([]guestproto.OpInfo, error) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.all.ops[""], nil
}

func (s *stubGuest) TarIn(_ context.Context, _ guestproto.OpID, _, _ string, r io.Reader) (int64, error) {
	b, err := io.ReadAll(r)
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.all.code = b
	return 1, err
}
