package control_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/spec"
)

// TestStress does everything at once on a node that refuses, fails and loses
// boxes, through restarts, and then finds nothing left. The node itself checks
// that no session is ever given a second box.
func TestStress(t *testing.T) {
	w := newWorld(t, 20, spec.Scheduler{MaxActiveSessions: 30, QueueLength: 20})
	w.node.onCreate = func(ctx context.Context, _ node.CreateRequest) error {
		select {
		case <-time.After(time.Duration(rand.IntN(2000)) * time.Microsecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if rand.IntN(20) == 0 {
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "node", "bad luck")
		}
		return nil
	}
	w.node.onDestroy = func(string) error {
		if rand.IntN(10) == 0 {
			return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "node", "busy")
		}
		return nil
	}
	for round := range 3 {
		var wg sync.WaitGroup
		for worker := range 6 {
			wg.Go(func() {
				for i := range 25 {
					w.disturb(fmt.Sprintf("%d-%d-%d", round, worker, i))
				}
			})
		}
		wg.Wait()
		w.restart()
	}
	w.end()
}

func (w *world) disturb(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+rand.IntN(40))*time.Millisecond)
	defer cancel()
	req := request(1 + rand.IntN(4))
	req.Job = name
	req.NoWait = rand.IntN(3) == 0
	if rand.IntN(2) == 0 {
		req.Key = name
	}
	res, err := w.Create(ctx, control.DefaultProject, req)
	if err != nil && req.Key != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Millisecond)
		defer cancel()
		res, _ = w.Create(ctx, control.DefaultProject, req) // or it was waiting for room: then Stop finds it
	}
	sel := control.Selector{Job: name}
	for _, r := range res {
		if r.Session == nil {
			continue
		}
		switch rand.IntN(4) {
		case 0:
			w.node.mu.Lock()
			delete(w.node.live, r.Session.ID)
			w.node.mu.Unlock()
			w.node.events <- node.Event{Kind: node.BoxLost, Session: r.Session.ID}
		case 1:
			_, _ = w.Suspend(context.Background(), control.DefaultProject, sel)
			if _, release, err := w.Guest(context.Background(), control.DefaultProject, r.Session.ID); err == nil {
				release()
			}
		}
	}
	if rand.IntN(4) > 0 {
		res, err := w.Stop(context.Background(), control.DefaultProject, sel, "enough")
		for _, r := range res {
			if r.Err != nil || r.Session.Phase != "COMPLETED" && r.Session.Phase != "FAILED" {
				w.t.Errorf("stop: %+v", r)
			}
		}
		if err != nil {
			w.t.Error(err)
		}
	}
}
