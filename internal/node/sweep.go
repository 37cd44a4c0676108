package node

import (
	"context"
	"sync"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// sweeps removes boxes that have no handle: those that were never whole, or that
// could not be opened. The proof is that a sweep finds nothing of the box that stays.
// A sweep looks at the whole machine, so that one serves everybody who waits. The zero value is ready.
type sweeps struct {
	waitMu sync.Mutex
	waits  []*sweepWait
	mu     sync.Mutex // one sweep at a time; guards done and err of the waits
}

type sweepWait struct {
	box  *box
	done bool
	err  error
}

func (w *sweeps) remove(ctx context.Context, b *box) error {
	me := &sweepWait{box: b}
	w.waitMu.Lock()
	w.waits = append(w.waits, me)
	w.waitMu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !me.done {
		w.waitMu.Lock()
		all := w.waits
		w.waits = nil
		w.waitMu.Unlock()
		w.sweep(ctx, all)
	}
	return me.err
}

func (w *sweeps) sweep(ctx context.Context, all []*sweepWait) {
	groups := map[runtime.Runtime]map[string]*sweepWait{}
	for _, one := range all {
		g := groups[one.box.rt]
		if g == nil {
			g = map[string]*sweepWait{}
			groups[one.box.rt] = g
		}
		g[one.box.id] = one
		one.done = true
	}
	for rt, g := range groups {
		orphans, err := rt.Sweep(ctx, func(id string) bool { return g[id] == nil })
		if err != nil {
			for _, one := range g {
				one.err = errdefs.From(err)
			}
			continue
		}
		for _, o := range orphans {
			if one := g[o.ID]; one != nil && o.Err != nil {
				one.err = errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+o.ID, "its %s %s cannot be removed: %w", o.Kind, o.What, o.Err)
			}
		}
	}
}
