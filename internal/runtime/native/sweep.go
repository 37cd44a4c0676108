package native

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// Sweep removes what belongs to no box. Everything that this runtime makes
// carries the box's id in its name, so each trace leads to all others.
func (r *Runtime) Sweep(_ context.Context, keep func(id string) bool) ([]runtime.Orphan, error) {
	ids, err := r.traced()
	if err != nil {
		return nil, err
	}
	var orphans []runtime.Orphan
	for id := range ids {
		if keep(id) {
			continue
		}
		orphans = append(orphans, r.sweepOne(id)...)
	}
	r.trees.Forget()
	return orphans, nil
}

// sweepOne removes one id's traces. A box in the making or unmaking is left
// alone; so is what its owner has removed since it was seen.
func (r *Runtime) sweepOne(id string) []runtime.Orphan {
	r.mu.Lock()
	b, known := r.boxes[id]
	if !known {
		r.boxes[id] = nil
	}
	r.mu.Unlock()
	if known && b == nil {
		return nil
	}
	seen := r.traces(id)
	isSpare := exists(filepath.Join(r.socketDir(), id+spareSuffix+".sock"))
	switch {
	case b != nil:
		err := b.Destroy(context.Background())
		for i := range seen {
			seen[i].Err = err
		}
	case len(seen) > 0:
		err := r.removeByID(id)
		for i := range seen {
			seen[i].Err = err
		}
	}
	if !known {
		r.leave(id, nil)
	}
	if isSpare { // it ends with its daemon, and what it leaves is nobody's fault
		seen = slices.DeleteFunc(seen, func(o runtime.Orphan) bool { return o.Err == nil })
	}
	return seen
}

// removeByID does what a box's Destroy does for a box that nobody has a handle of.
func (r *Runtime) removeByID(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	err := errors.Join(r.removeGroups(ctx, id), r.removeSocket(id), r.stores.Remove(id))
	if err == nil {
		r.slots.freeAll(id)
	}
	return err
}

// traced gives the ids of which anything was seen.
func (r *Runtime) traced() (map[string]bool, error) {
	found := map[string]bool{}
	ids, err := r.groups.List()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		found[id] = true
	}
	entries, err := os.ReadDir(r.socketDir())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".sock"); ok {
			found[strings.TrimSuffix(id, spareSuffix)] = true
		}
	}
	stores, err := r.stores.List()
	for _, id := range stores {
		found[id] = true
	}
	return found, err
}

// traces gives what there is of an id.
func (r *Runtime) traces(id string) []runtime.Orphan {
	var seen []runtime.Orphan
	for _, pid := range r.groups.Pids(id) {
		seen = append(seen, runtime.Orphan{ID: id, Kind: "process", What: strconv.Itoa(pid)})
	}
	if r.groups.Exists(id) {
		seen = append(seen, runtime.Orphan{ID: id, Kind: "cgroup", What: id})
	}
	for _, name := range []string{id, id + spareSuffix} {
		if sock := filepath.Join(r.socketDir(), name+".sock"); exists(sock) {
			seen = append(seen, runtime.Orphan{ID: id, Kind: "socket", What: sock})
		}
	}
	for _, what := range r.stores.Find(id) {
		kind := "directory"
		if strings.HasSuffix(what, ".img") {
			kind = "loop"
		}
		seen = append(seen, runtime.Orphan{ID: id, Kind: kind, What: what})
	}
	return seen
}

func (r *Runtime) socketDir() string { return filepath.Join(r.o.RunDir, "boxes") }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
