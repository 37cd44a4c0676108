package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

const (
	refillInterval = time.Second
	maxPause       = 30 * time.Second
	maxHopeless    = 5 * time.Minute
	// refillQuiet is how long a pool of which more than half is there stays as it is after a claim: the
	// next tick fills it. Between half and a quarter it is filled as boxes go away (see spares.lull).
	refillQuiet = 50 * time.Millisecond
)

// Warm keeps the pool of this root filled from now on, before anybody asks for it.
func (n *Node) Warm(runtimeName string, root runtime.Root, rootWritable bool) error {
	rt, err := n.runtime(runtimeName)
	if err != nil {
		return err
	}
	n.pools.mu.Lock()
	q, _ := n.pools.get(poolKey{root.Template, rt.Name(), rootWritable}, time.Now())
	q.root, q.pinned = root, true
	n.pools.mu.Unlock()
	n.pools.poke()
	return nil
}

// DropTemplate ends the pools of a template ("name@version") and returns when none of their
// boxes is left. It comes before the removal of the template's layers.
func (n *Node) DropTemplate(ctx context.Context, template string) error {
	if err := n.enter(); err != nil {
		return err
	}
	defer n.wg.Done()
	n.pools.mu.Lock()
	var dropped []*pool
	for key, q := range n.pools.byKey {
		if key.template == template {
			q.dropped = true
			delete(n.pools.byKey, key)
			dropped = append(dropped, q)
		}
	}
	n.pools.mu.Unlock()
	for _, q := range dropped {
		q.makes.Wait()
		for _, b := range q.idle { // nobody else has the pool any more
			b.destroying.Store(true)
		}
		for _, b := range q.idle {
			if err := n.reclaim(ctx, b); err != nil {
				return err
			}
		}
		n.letGo(q)
	}
	return nil
}

// hold keeps the pool's template from being removed while the pool exists.
func (n *Node) hold(q *pool) error {
	n.pools.mu.Lock()
	held := q.release != nil || n.cfg.Hold == nil
	n.pools.mu.Unlock()
	if held {
		return nil
	}
	release, err := n.cfg.Hold(n.ctx, q.key.template)
	if err != nil {
		return err
	}
	n.pools.mu.Lock()
	if q.release == nil {
		q.release, release = release, nil
	}
	n.pools.mu.Unlock()
	if release != nil {
		release() // another make was faster
	}
	return nil
}

// letGo allows the removal of a dropped pool's template.
func (n *Node) letGo(q *pool) {
	n.pools.mu.Lock()
	release := q.release
	q.release = nil
	n.pools.mu.Unlock()
	if release != nil {
		release()
	}
}

// runRefill keeps the pools at their targets.
func (n *Node) runRefill() {
	if !n.pools.on() {
		return
	}
	tick := time.NewTicker(refillInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.pools.wake:
		case <-n.ctx.Done():
			return
		}
		if n.draining.Load() {
			n.emptyPools()
			continue
		}
		n.refill(time.Now())
	}
}

// emptyPools reclaims every idle box.
func (n *Node) emptyPools() {
	for b := n.pools.evict(); b != nil && n.ctx.Err() == nil; b = n.pools.evict() {
		n.discard(b)
	}
}

// refill starts what is missing and drops what is too much.
func (n *Node) refill(now time.Time) {
	var drop []*box
	var dropped []*pool
	vacant := 0
	if n.pools.vacant.Swap(false) {
		vacant = 2 // more than was taken: the pool must get out of its first quarter again
	}
	n.pools.mu.Lock()
	for key, q := range n.pools.byKey {
		if !q.pinned && now.Sub(q.used) > keyTTL && q.making == 0 {
			drop = append(drop, q.idle...)
			q.idle, q.dropped = nil, true
			delete(n.pools.byKey, key)
			dropped = append(dropped, q)
			continue
		}
		start, surplus := q.model.Plan(now, len(q.idle), q.making)
		if now.Sub(q.used) < refillQuiet { // the session that came needs the cores
			switch {
			case start < len(q.idle):
				start = 0
			case start < 3*len(q.idle):
				start = min(start, vacant)
				vacant -= start
			}
		}
		for range start {
			if !n.startMake(q, now) {
				break
			}
		}
		drop = append(drop, q.idle[:surplus]...)
		q.idle = slices.Delete(q.idle, 0, surplus)
	}
	n.pools.mu.Unlock()
	for _, b := range drop {
		n.discard(b)
	}
	for _, q := range dropped {
		n.letGo(q)
	}
}

// startMake makes one box for the pool beside the refiller, if creates leave
// room for it. pools.mu is held.
func (n *Node) startMake(q *pool, now time.Time) bool {
	if q.root.Template == "" || now.Before(q.retry) || n.waiting.Load() > 0 {
		return false
	}
	select {
	case n.pools.tokens <- struct{}{}:
	default:
		return false
	}
	q.making++
	q.makes.Add(1)
	root, store := q.root, q.store
	n.wg.Go(func() {
		began := time.Now()
		b, err := n.makePooled(q, root, store)
		n.pools.mu.Lock()
		q.making--
		switch {
		case err == nil:
			q.model.Made(refillQuiet + time.Since(began)) // what passes between a claim and its replacement
			q.pause, q.said = 0, false
			if !q.dropped {
				q.idle = append(q.idle, b)
				b = nil
			}
		default:
			q.pause = after(q.pause, err)
			q.retry = time.Now().Add(q.pause)
		}
		pause, level := q.pause, slog.LevelWarn
		if q.said { // once until a box is made again
			level = slog.LevelDebug
		}
		q.said = q.said || err != nil
		n.pools.mu.Unlock()
		if b != nil {
			n.discard(b)
		}
		if err != nil && n.ctx.Err() == nil {
			n.log.Log(n.ctx, level, "the pool cannot be filled", "template", q.key.template, "err", err, "retry_in", pause)
		}
		<-n.pools.tokens
		q.makes.Done()
		if err == nil {
			n.pools.poke()
		}
	})
	return true
}

// after gives the pause that follows one after another failure. Room may be there at any time; a template whose box
// does not start is not tried much more often than somebody looks at it.
func after(pause time.Duration, err error) time.Duration {
	most := maxHopeless
	if errors.Is(err, errdefs.ErrNodeFull) {
		most = maxPause
	}
	return min(max(2*pause, time.Second), most)
}

// makePooled makes an idle box. One that was made although something failed
// comes with the error and has to be reclaimed.
func (n *Node) makePooled(q *pool, root runtime.Root, store poolStore) (*box, error) {
	rt, err := n.runtime(q.key.runtime)
	if err != nil {
		return nil, err
	}
	if err := n.hold(q); err != nil {
		return nil, err
	}
	m := &meta{Runtime: rt.Name(), Template: root.Template, RootWritable: q.key.rootWritable, Limits: n.cfg.PoolLimits, Since: time.Now()}
	b, err := n.reserve(rt, m)
	if err != nil {
		return nil, err
	}
	err = n.build(n.ctx, b, runtime.Config{
		ID: b.id, Root: root, RootWritable: q.key.rootWritable, Pooled: true,
		Claim: runtime.Claim{Limits: m.Limits, Store: store.kind, StoreSize: store.size},
	})
	if q.key.rootWritable {
		b.store = store
	}
	if err == nil {
		err = n.journal.append(&record{Kind: recPool, Box: b.id})
	}
	if err != nil {
		return b, errdefs.From(err)
	}
	b.mu.Lock()
	b.made = true
	b.mu.Unlock()
	return b, nil
}
