package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/sched"
)

// Node implements API on one machine. Make one with New, then Start it; after
// Close its boxes live on and the next node on the same data directory adopts them.
// Safe for concurrent use.
type Node struct {
	cfg     Config
	log     *slog.Logger
	metrics *metrics
	ledger  *ledger
	events  *eventQueue
	clock   *clock
	pools   *pools
	spares  *spares
	journal *journal

	epoch, run int64
	seq        atomic.Int64

	mu       sync.RWMutex
	boxes    map[string]*box
	lent     map[string]bool // ids of boxes that are no session's and not the pool's
	sessions map[string]*session
	open     bool

	creates  chan struct{} // one token for each box in the making, first in first out
	claims   chan struct{} // likewise for claims
	reclaims chan struct{} // likewise for boxes being removed
	asking   chan struct{} // likewise for guests asked whether they are idle
	sweeps   sweeps
	waiting  atomic.Int64 // creates that wait for a token: refills stand back
	draining atomic.Bool
	refused  atomic.Bool // somebody was refused: tell when there is room

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup
}

var _ API = (*Node)(nil)

// New makes a node; nothing is touched before Start.
func New(c Config) (*Node, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	l, err := sched.NewLedger(sched.Demand{Memory: c.Memory, CPU: c.CPU},
		sched.Ratios{Memory: c.Scheduler.MemoryOvercommitRatio, CPU: c.Scheduler.CPUOvercommitRatio})
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: c, log: c.Logger, ledger: &ledger{l: l},
		boxes: map[string]*box{}, lent: map[string]bool{}, sessions: map[string]*session{},
		creates: make(chan struct{}, c.CreateConcurrency),
		claims:  make(chan struct{}, 4*c.CreateConcurrency), reclaims: make(chan struct{}, 4*c.CreateConcurrency),
		asking: make(chan struct{}, idleChecks),
		events: newEventQueue(), clock: newClock(c.boot),
	}
	n.pools, n.spares = newPools(c.poolConfig(), c.RefillConcurrency), newSpares(c.Spares)
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.metrics, err = newMetrics(n, c.Metrics)
	return n, err
}

// Start takes over what an earlier node of the data directory left: it adopts
// live boxes, removes the rest, and returns when Inventory is complete. It is called once.
func (n *Node) Start(ctx context.Context) error {
	began := time.Now()
	j, p, err := openJournal(n.cfg.DataDir)
	if err != nil {
		return err
	}
	n.journal = j
	if err := n.takeOver(ctx, p); err != nil {
		_ = j.close()
		return err
	}
	n.mu.Lock()
	n.open = true
	adopted := len(n.boxes)
	n.mu.Unlock()
	n.wg.Go(n.events.run)
	n.wg.Go(n.runClock)
	n.wg.Go(n.runWatch)
	n.wg.Go(n.runPatrol)
	n.wg.Go(n.runRefill)
	n.wg.Go(n.runSpares)
	n.log.Info("node started", "epoch", n.epoch, "adopted", adopted, "took", time.Since(began))
	return nil
}

// Close stops the node and leaves its boxes alone. Creates in flight are
// cancelled and undone, reclaims in flight are finished; it returns when no goroutine is left. Idempotent.
func (n *Node) Close() error {
	n.mu.Lock()
	n.open = false
	sessions := make([]*session, 0, len(n.sessions))
	for _, s := range n.sessions {
		sessions = append(sessions, s)
	}
	n.mu.Unlock()
	n.stop()
	n.events.stop()
	for _, s := range sessions {
		n.dropGuest(s)
	}
	n.wg.Wait()
	n.endSpares()
	n.wg.Wait()
	// A create that was just finishing may have connected meanwhile.
	for _, s := range sessions {
		n.dropGuest(s)
	}
	n.pools.mu.Lock()
	held := slices.Collect(maps.Values(n.pools.byKey))
	n.pools.mu.Unlock()
	for _, q := range held {
		n.letGo(q)
	}
	n.metrics.unregister()
	if n.journal == nil {
		return nil
	}
	return n.journal.close()
}

// SetDraining refuses new boxes and empties the pool; live boxes go on.
func (n *Node) SetDraining(on bool) {
	n.draining.Store(on)
	n.pools.poke()
	n.spares.poke()
}

// newBoxID is unique under the data directory: it has the node's epoch (which changes with the
// machine's boot), the number of the daemon's start and a sequence.
func (n *Node) newBoxID() string {
	b36 := func(v int64) string { return strconv.FormatInt(v, 36) }
	return fmt.Sprintf("b%s-%s-%s", b36(n.epoch), b36(n.run), b36(n.seq.Add(1)))
}

// enter counts a call that Close has to wait for.
func (n *Node) enter() error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if !n.open {
		e := errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "node", "it is starting or stopping")
		e.Remedy = "try again"
		return e
	}
	n.wg.Add(1)
	return nil
}

func (n *Node) session(id string) *session {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.sessions[id]
}

// all appends the current boxes to list.
func (n *Node) all(list []*box) []*box {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, b := range n.boxes {
		list = append(list, b)
	}
	return list
}

func (n *Node) runtime(name string) (runtime.Runtime, error) {
	if name == "" {
		name = n.cfg.DefaultRuntime
	}
	rt, ok := n.cfg.Runtimes[name]
	if !ok {
		return nil, errdefs.Userf(errdefs.Unsupported, "field runtime", "use "+n.cfg.DefaultRuntime, "runtime %q is not available on this node", name)
	}
	return rt, nil
}
