package control

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/sched"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store"
	"github.com/dsec-platform/dsec/internal/template"
)

// DefaultProject owns what is done over the local socket, without a key.
const DefaultProject = "default"

// Config of a control plane. Store, Node and Templates must be set; the caller
// closes them after the control plane. Any other zero field means its default.
type Config struct {
	Store     *store.Store
	Node      node.API
	Templates template.Store
	// NodeName is kept with each session; "local".
	NodeName string
	// Scheduler is a resolved scheduler_config: max_active_sessions, queue_length
	// and task_timeout_seconds act here.
	Scheduler spec.Scheduler
	// Networks compiles what sessions may reach; nil: no session gets a way out.
	Networks Networks
	// Proxy is where boxes with a network find an explicit proxy, which they have in place of a device; empty: they have
	// devices.
	Proxy string
	// DataMounts are the host directories that sessions may mount, read-only; none by default.
	DataMounts []string
	Logger     *slog.Logger
	Now        func() time.Time
	// AuditGrace is how long a box past its max_runtime keeps its evidence; 2 minutes.
	AuditGrace time.Duration
	// Placing and Reclaiming bound how many boxes are asked for, or destroyed, at the same time; 64 each.
	Placing, Reclaiming int
	// MaxCode bounds the code of all sessions that wait for a box, in bytes; 1 GiB.
	MaxCode int64
	// RetryMin and RetryMax bound the pause between attempts at a reclaim or a
	// write that failed; 50 ms and 10 s.
	RetryMin, RetryMax time.Duration
	// KeepEnded is how long the record of a session is kept after its end; 30 days. It is at
	// least as long as idempotency keys stand.
	KeepEnded time.Duration
	// Housekeeping is the pause between two looks at what may have been missed; 5 s.
	Housekeeping time.Duration
}

// Control is the control plane. It implements API. Make one with New, then Start it.
type Control struct {
	cfg      Config
	log      *slog.Logger
	store    *store.Store
	node     node.API
	counters Counters
	ids      idSource
	began    time.Time    // of this process; heartbeats are counted from it, so that no change of the clock matters
	codeHeld atomic.Int64 // bytes of code in memory

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  tasks

	reviving turn // held while a lease that has no owner is made to live again, or is released

	placing, reclaiming chan struct{} // slots
	wake                chan struct{} // of the dispatcher, capacity 1

	mu       sync.Mutex
	live     map[string]*live
	queue    *sched.Queue
	blocked  bool   // the node refused the head of the line; wait for room
	pressed  bool   // it refused somebody since the line was empty
	freed    uint64 // how often room was reported
	requests map[requestKey]*request
	answered uint64            // how many requests with a key have left requests
	roots    map[string]*root  // by name@version
	owners   map[string]*owner // leases that have not ended
}

var _ API = (*Control)(nil)

// New makes a control plane that does nothing yet.
func New(cfg Config) *Control {
	def(&cfg.NodeName, "local")
	def(&cfg.AuditGrace, 2*time.Minute)
	def(&cfg.Placing, 64)
	def(&cfg.Reclaiming, 64)
	def(&cfg.MaxCode, 1<<30)
	def(&cfg.RetryMin, 50*time.Millisecond)
	def(&cfg.RetryMax, 10*time.Second)
	def(&cfg.Housekeeping, 5*time.Second)
	def(&cfg.KeepEnded, 30*24*time.Hour)
	cfg.KeepEnded = max(cfg.KeepEnded, keyWindow)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Control{
		reviving: newTurn(),
		cfg:      cfg, log: cfg.Logger, store: cfg.Store, node: cfg.Node,
		placing: make(chan struct{}, cfg.Placing), reclaiming: make(chan struct{}, cfg.Reclaiming), wake: make(chan struct{}, 1),
		live: map[string]*live{}, requests: map[requestKey]*request{}, roots: map[string]*root{}, owners: map[string]*owner{},
		queue: sched.NewQueue(cfg.Scheduler.MaxActiveSessions, cfg.Scheduler.QueueLength),
	}
	c.began = cfg.Now()
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start makes the rows and the node's inventory agree and begins to serve. When
// it returns, every session that lived through a restart is known again. Ctx bounds Start alone.
func (c *Control) Start(ctx context.Context) error {
	if _, err := c.store.EnsureProject(ctx, store.Project{ID: DefaultProject, Created: c.cfg.Now()}); err != nil {
		return err
	}
	if err := c.restoreOwners(ctx); err != nil {
		return err
	}
	if err := c.reconcile(ctx); err != nil {
		return err
	}
	c.tasks.spawn(c.dispatch)
	c.tasks.spawn(c.follow)
	c.tasks.spawn(c.housekeep)
	return nil
}

// Close stops serving. Boxes live on and are found again by the next Start;
// creates that are not RUNNING yet are cancelled at the node.
func (c *Control) Close() {
	c.cancel()
	c.tasks.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.live {
		l.stopTimers()
	}
	for _, o := range c.owners {
		o.timer.Stop()
	}
	for _, r := range c.roots {
		r.release()
	}
	clear(c.roots)
}

// housekeep does what is due now and then.
func (c *Control) housekeep() {
	tick := time.NewTicker(c.cfg.Housekeeping)
	defer tick.Stop()
	var expired time.Time
	for {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return
		}
		// A lost notice of room must not stall the queue for ever.
		c.roomFreed()
		c.repair()
		if now := c.cfg.Now(); now.Sub(expired) > time.Hour {
			expired = now
			if err := c.expire(now); err != nil && c.ctx.Err() == nil {
				c.log.Warn("old records could not be removed", "err", err)
			}
		}
	}
}

// expire removes what nobody needs any more, a little at a time: creates wait for the same writer.
func (c *Control) expire(now time.Time) error {
	if _, err := c.store.ExpireKeys(c.ctx, now.Add(-keyWindow)); err != nil {
		return err
	}
	const some = 256 // sessions at a time
	for {
		n, err := c.store.ExpireSessions(c.ctx, now.Add(-c.cfg.KeepEnded), some)
		if err != nil {
			return err
		}
		if n < some {
			break
		}
	}
	_, err := c.store.ExpireLeases(c.ctx, now.Add(-keyWindow))
	return err
}

// closing is the error of whoever comes too late.
func closing() error {
	return errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "server", "it is stopping")
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
