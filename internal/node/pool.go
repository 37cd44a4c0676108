package node

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/sched"
)

// keyTTL is how long a pool is kept for a key that nobody asks for.
const keyTTL = 10 * time.Minute

// poolKey is what a pooled box is made for; everything else may differ at a claim.
type poolKey struct {
	template, runtime string
	rootWritable      bool
}

// pools are the boxes that are made ahead of demand, by key. Safe for concurrent use.
type pools struct {
	config sched.PoolConfig
	wake   chan struct{} // capacity 1: look at the targets now
	tokens chan struct{} // boxes in the making
	vacant atomic.Bool   // a box is going away

	mu     sync.Mutex
	byKey  map[poolKey]*pool
	hits   int64
	misses map[string]int64
}

// pool is the boxes of one key. Guarded by pools.mu.
type pool struct {
	key     poolKey
	root    runtime.Root // empty until a create has told it
	store   poolStore
	model   *sched.Pool
	idle    []*box // the newest is claimed first: its memory is the warmest
	making  int
	makes   sync.WaitGroup
	pinned  bool
	used    time.Time
	dropped bool
	release func() // of the template; nil: not held
	// After a failure no box is made before retry; pause doubles.
	retry time.Time
	pause time.Duration
	said  bool // that boxes cannot be made, since the last one was
}

// poolStore is the store that writable roots of a pool are made with: what the latest
// create asked for, because an image on disk cannot be resized at the claim.
type poolStore struct {
	kind string
	size int64
}

func newPools(c sched.PoolConfig, refills int) *pools {
	return &pools{
		config: c, wake: make(chan struct{}, 1), tokens: make(chan struct{}, refills),
		byKey: map[poolKey]*pool{}, misses: map[string]int64{},
	}
}

func (p *pools) on() bool { return p.config.MaxIdle > 0 }

func (p *pools) poke() { signal(p.wake) }

// vacated is told when a box is going away.
func (p *pools) vacated() {
	p.vacant.Store(true)
	p.poke()
}

// get gives the pool of key, made if absent. p.mu is held.
func (p *pools) get(key poolKey, now time.Time) (q *pool, first bool) {
	q = p.byKey[key]
	if q == nil {
		q = &pool{key: key, model: sched.NewPool(p.config, now), used: now}
		p.byKey[key] = q
		return q, true
	}
	return q, false
}

// claim takes an idle box for a create that asks for key now, or says why there is none.
func (p *pools) claim(key poolKey, root runtime.Root, store poolStore, now time.Time) (*box, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q, first := p.get(key, now)
	q.root, q.used = root, now
	if key.rootWritable {
		q.store = store
	}
	q.model.Arrive(now, 1)
	for len(q.idle) > 0 {
		i := q.fitting(store)
		b := q.idle[i]
		q.idle = slices.Delete(q.idle, i, i+1)
		if r := b.runtimeBox(); r != nil && !ended(r) {
			p.hits++
			return b, ""
		}
		// The watch reclaims a box that has ended.
	}
	if first {
		return nil, coldFirst
	}
	return nil, coldEmpty
}

// fitting gives the place of the newest idle box whose store is the one that is asked for, or of
// the newest: not every store can be changed at the claim. There is one.
func (q *pool) fitting(store poolStore) int {
	newest := len(q.idle) - 1
	for i := newest; i >= 0 && q.key.rootWritable; i-- {
		if q.idle[i].store == store {
			return i
		}
	}
	return newest
}

// giveBack returns a box that was not claimed after all.
func (p *pools) giveBack(b *box) {
	b.mu.Lock()
	key := b.meta.poolKey()
	b.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hits--
	if q := p.byKey[key]; q != nil {
		q.idle = append(q.idle, b)
		return
	}
	b.destroying.Store(true) // its pool was dropped meanwhile; patrol reclaims it
}

func (p *pools) missed(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.misses[reason]++
}

// remove takes a box out of its pool, if it is there.
func (p *pools) remove(b *box) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.byKey {
		if i := slices.Index(q.idle, b); i >= 0 {
			q.idle = slices.Delete(q.idle, i, i+1)
			return
		}
	}
}

// evict gives an idle box of the fullest pool, for a session that needs its place.
func (p *pools) evict() *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	var most *pool
	for _, q := range p.byKey {
		if len(q.idle) > 0 && (most == nil || len(q.idle) > len(most.idle)) {
			most = q
		}
	}
	if most == nil {
		return nil
	}
	b := most.idle[0]
	most.idle = slices.Delete(most.idle, 0, 1)
	return b
}

// settle waits for the boxes that are in the making, and tells whether there were any.
func (p *pools) settle() bool {
	var making []*pool
	p.mu.Lock()
	for _, q := range p.byKey {
		if q.making > 0 {
			making = append(making, q)
		}
	}
	p.mu.Unlock()
	for _, q := range making {
		q.makes.Wait()
	}
	return len(making) > 0
}

// figures sums up for Stats.
func (p *pools) figures(now time.Time) (idle, target int, hits int64, misses map[string]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	misses = make(map[string]int64, len(p.misses))
	for reason, n := range p.misses {
		misses[reason] = n
	}
	for _, q := range p.byKey {
		idle += len(q.idle)
		if p.on() {
			target += q.model.Target(now)
		}
	}
	return idle, target, p.hits, misses
}

// fromPool takes an idle box for the request, or says why it has to be made.
func (n *Node) fromPool(m *meta, req *CreateRequest) (*box, string) {
	if !n.pools.on() {
		return nil, coldPoolOff
	}
	if req.NoPool {
		return nil, coldNotWanted
	}
	b, cold := n.pools.claim(m.poolKey(), req.Root, poolStore{req.Claim.Store, req.Claim.StoreSize}, time.Now())
	n.pools.poke()
	return b, cold
}
