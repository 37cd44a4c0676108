package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
)

// Stop implements API.
func (c *Control) Stop(ctx context.Context, project string, sel Selector, reason string) ([]StopResult, error) {
	if reason == "" {
		reason = "stopped"
	}
	if sel.Key != "" {
		if r, _ := c.inFlight(project, sel.Key); r != nil {
			r.cancel() // make no more of them
			select {
			case <-r.done:
			case <-ctx.Done():
				return nil, errdefs.From(ctx.Err())
			}
		}
	}
	targets, err := c.choose(ctx, project, sel)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if t.live != nil {
			c.conclude(t.live, session.Stop{Reason: reason})
		}
	}
	return gather(targets, func(t *target) StopResult {
		if t.live == nil {
			return StopResult{ID: t.id, Session: t.ended, Err: t.err}
		}
		row, err := c.waitFor(ctx, t.live, session.Completed)
		if err != nil {
			return StopResult{ID: t.id, Session: c.show(t.live), Err: errdefs.From(err)}
		}
		return StopResult{ID: t.id, Session: view(&t.live.rec, row)}
	}, 1), nil
}

// endAll stops sessions and waits for their reclaim.
func (c *Control) endAll(ctx context.Context, lives []*live, reason string, purge bool) {
	for _, l := range lives {
		l.mu.Lock()
		l.purge = l.purge || purge
		l.mu.Unlock()
		c.conclude(l, session.Stop{Reason: reason})
	}
	for _, l := range lives {
		if _, err := c.waitFor(ctx, l, session.Completed); err != nil {
			return
		}
	}
}

// target is a session that a selector chose: live, ended, or not there.
type target struct {
	id    string
	live  *live
	ended *Session
	err   *errdefs.Error
}

// choose finds what a selector names. Sessions named by id or key may have
// ended; by job, label, lease or all only live ones are chosen.
func (c *Control) choose(ctx context.Context, project string, sel Selector) ([]*target, error) {
	ways := 0
	for _, set := range []bool{len(sel.IDs) > 0, sel.Job != "", len(sel.Labels) > 0, sel.Key != "", sel.Lease != "", sel.All} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "field selector", "give exactly one of ids, job, labels, key, lease, all", "it names sessions in %d ways", ways)
	}
	switch {
	case len(sel.IDs) > MaxCount:
		return nil, errdefs.Userf(errdefs.InvalidArgument, "field selector.ids", fmt.Sprintf("name at most %d", MaxCount), "it has %d ids", len(sel.IDs))
	case len(sel.IDs) > 0:
		return c.byIDs(ctx, project, sel.IDs), nil
	case sel.Key != "":
		return c.byKey(ctx, project, sel.Key)
	}
	var out []*target
	for _, l := range c.all() {
		if l.rec.Project == project && (sel.All || sel.Job != "" && l.rec.Job == sel.Job || sel.Lease != "" && l.rec.Lease == sel.Lease || len(sel.Labels) > 0 && hasLabels(l.rec.Labels, sel.Labels)) {
			out = append(out, &target{id: l.rec.ID, live: l})
		}
	}
	slices.SortFunc(out, func(a, b *target) int { return cmp.Compare(a.id, b.id) })
	return out, nil
}

func (c *Control) byIDs(ctx context.Context, project string, ids []string) []*target {
	out := make([]*target, len(ids))
	for i, id := range ids {
		out[i] = &target{id: id}
		l, s, err := c.lookup(ctx, project, id)
		out[i].live, out[i].ended = l, s
		if err != nil {
			out[i].err = errdefs.From(err)
		}
	}
	return out
}

func (c *Control) byKey(ctx context.Context, project, key string) ([]*target, error) {
	known, err := c.store.LookupKey(ctx, project, key, c.cfg.Now().Add(-keyWindow))
	if err != nil {
		if r, _ := c.inFlight(project, key); r != nil && errors.Is(err, errdefs.ErrNotFound) {
			return nil, nil // nothing of it was made
		}
		return nil, err
	}
	recs, err := c.store.ByRequest(ctx, known.Request)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(recs))
	for i, rec := range recs {
		ids[i] = rec.ID
	}
	return c.byIDs(ctx, project, ids), nil
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// gather asks fn about each target, at most width at a time, and keeps the order.
func gather(targets []*target, fn func(*target) StopResult, width int) []StopResult {
	out := make([]StopResult, len(targets))
	slots := make(chan struct{}, width)
	var wg sync.WaitGroup
	for i, t := range targets {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out[i] = fn(t)
		})
	}
	wg.Wait()
	return out
}
