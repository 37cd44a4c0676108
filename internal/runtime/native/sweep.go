package native

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// Sweep removes what belongs to no box. Everything that this runtime makes
// carries the box's id in its name, so each trace leads to all others.
func (r *Runtime) Sweep(_ context.Context, keep func(id string) bool) ([]runtime.Orphan, error) {
	traces, err := r.traces()
	if err != nil {
		return nil, err
	}
	var orphans []runtime.Orphan
	for _, id := range slices.Sorted(maps.Keys(traces)) {
		if keep(id) || !r.enter(id) {
			continue
		}
		orphans = append(orphans, r.sweepOne(id, traces[id])...)
		r.leave(id, nil)
	}
	r.trees.Forget()
	return orphans, nil
}

// traces gives for each id what was seen of it.
func (r *Runtime) traces() (map[string][]runtime.Orphan, error) {
	traces := map[string][]runtime.Orphan{}
	add := func(id, kind, what string) {
		traces[id] = append(traces[id], runtime.Orphan{ID: id, Kind: kind, What: what})
	}
	ids, err := r.groups.List()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		for _, pid := range r.groups.Pids(id) {
			add(id, "process", pid)
		}
		add(id, "cgroup", id)
	}
	socks := filepath.Join(r.o.RunDir, "boxes")
	entries, err := os.ReadDir(socks)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".sock"); ok {
			add(id, "socket", filepath.Join(socks, e.Name()))
		}
	}
	stores, err := r.stores.List()
	if err != nil {
		return nil, err
	}
	for id, what := range stores {
		add(id, "directory", what)
	}
	return traces, nil
}

func (r *Runtime) sweepOne(id string, seen []runtime.Orphan) []runtime.Orphan {
	slot := -1
	if owner, err := r.groups.Owner(id); err == nil {
		slot = slotOf(int(owner))
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	err := errors.Join(r.removeGroups(ctx, id), r.removeSocket(id), r.stores.Remove(id))
	if err == nil && slot >= 0 {
		r.slots.free(slot, id)
	}
	for i := range seen {
		seen[i].Err = err
	}
	return seen
}
