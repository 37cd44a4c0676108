// Package fake is a runtime without isolation: a box is a scratch directory and the real guest
// server, whose ops are ordinary processes of this machine and this user. It is for tests
// of what stands above a runtime, without root. It is never offered to users.
//
// Boxes outlive a Runtime within one process: another one made with New on the same directory
// finds them, as a restarted daemon would. Hooks and Kill make what goes wrong in reality.
package fake

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// Name of the runtime.
const Name = "fake"

// Hooks are called before the thing happens; an error makes it fail, waiting
// makes it slow. Any may be nil.
type Hooks struct {
	Prepare func(ctx context.Context, id string) error
	Create  func(ctx context.Context, cfg runtime.Config) error
	Open    func(ctx context.Context, id string) error
	Claim   func(ctx context.Context, id string) error
	Dial    func(ctx context.Context, id string) error
	Destroy func(ctx context.Context, id string) error
}

// Runtime implements runtime.Runtime.
type Runtime struct {
	world   *world
	severed atomic.Bool

	mu    sync.Mutex
	hooks Hooks
}

var _ runtime.Preparer = (*Runtime)(nil)

// world is what is on the machine: the boxes below one directory.
type world struct {
	dir   string
	mu    sync.Mutex
	boxes map[string]*Box
}

var (
	worldsMu sync.Mutex
	worlds   = map[string]*world{}
)

// New gives the runtime of dir, with the boxes that earlier ones left there.
func New(dir string) *Runtime {
	worldsMu.Lock()
	defer worldsMu.Unlock()
	w := worlds[dir]
	if w == nil {
		w = &world{dir: dir, boxes: map[string]*Box{}}
		worlds[dir] = w
	}
	return &Runtime{world: w}
}

// SetHooks replaces the hooks.
func (r *Runtime) SetHooks(h Hooks) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks = h
}

func (r *Runtime) hook() Hooks {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hooks
}

// Sever cuts this Runtime off, as the death of its daemon does: from now on every
// call on it and its boxes fails and changes nothing.
func (r *Runtime) Sever() { r.severed.Store(true) }

var errSevered = errors.New("fake: the daemon of this runtime is dead")

func (r *Runtime) alive() error {
	if r.severed.Load() {
		return errSevered
	}
	return nil
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return Name }

// Probe implements runtime.Runtime.
func (r *Runtime) Probe(context.Context) runtime.Probe {
	p := runtime.Probe{OK: true, Features: map[string]string{}}
	for _, f := range runtime.Features {
		p.Features[f] = "no: boxes are not isolated"
	}
	return p
}

// Create implements runtime.Runtime.
func (r *Runtime) Create(ctx context.Context, cfg runtime.Config) (runtime.Box, error) {
	if err := r.alive(); err != nil {
		return nil, err
	}
	if h := r.hook().Create; h != nil {
		if err := h(ctx, cfg); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, errdefs.From(err)
	}
	b, err := r.world.add(cfg)
	if err != nil {
		return nil, err
	}
	if err := r.alive(); err != nil {
		return nil, err // died with the box made: that is what a sweep is for
	}
	return &handle{rt: r, Box: b}, nil
}

// Prepare implements runtime.Preparer: the box's directory is what no Config changes.
func (r *Runtime) Prepare(ctx context.Context, id string) error {
	if err := r.alive(); err != nil {
		return err
	}
	if h := r.hook().Prepare; h != nil {
		if err := h(ctx, id); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return errdefs.From(err)
	}
	b, err := r.world.add(runtime.Config{ID: id})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = true
	return nil
}

// add makes the box, or goes on with one that was begun. One that has ended meanwhile is made anew.
func (w *world) add(cfg runtime.Config) (*Box, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.boxes[cfg.ID]; b != nil && b.goOn(cfg) {
		if !b.ended() {
			return b, nil
		}
	} else if b != nil {
		return nil, errdefs.Userf(errdefs.AlreadyExists, "box "+cfg.ID, "use another id", "it exists")
	}
	b, err := newBox(w, cfg)
	if err != nil {
		return nil, err
	}
	w.boxes[cfg.ID] = b
	return b, nil
}

// Open implements runtime.Runtime.
func (r *Runtime) Open(ctx context.Context, rec runtime.Record) (runtime.Box, error) {
	if err := r.alive(); err != nil {
		return nil, err
	}
	if h := r.hook().Open; h != nil {
		if err := h(ctx, rec.ID); err != nil {
			return nil, err
		}
	}
	var data recordData
	if err := json.Unmarshal(rec.Data, &data); err != nil || data.V != recordVersion {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+rec.ID, "its record cannot be read (version %d): %w", data.V, err)
	}
	b := r.Box(rec.ID)
	if b == nil || b.ended() {
		return nil, errdefs.Policyf(errdefs.BoxGone, "box "+rec.ID, "make another one", "its guest does not live any more")
	}
	return &handle{rt: r, Box: b}, nil
}

// Sweep implements runtime.Runtime.
func (r *Runtime) Sweep(ctx context.Context, keep func(id string) bool) ([]runtime.Orphan, error) {
	if err := r.alive(); err != nil {
		return nil, err
	}
	var found []runtime.Orphan
	for id, b := range r.world.all() {
		if keep(id) || r.Box(id) == nil { // or its owner has removed it meanwhile
			continue
		}
		if b.Begun() { // what nobody asked for is no orphan
			if err := (&handle{rt: r, Box: b}).Destroy(ctx); err != nil {
				return found, err
			}
			continue
		}
		kind := "process"
		if b.ended() {
			kind = "directory"
		}
		found = append(found, runtime.Orphan{ID: id, Kind: kind, What: b.dir, Err: (&handle{rt: r, Box: b}).Destroy(ctx)})
	}
	dirs, err := os.ReadDir(r.world.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return found, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "directory "+r.world.dir, "it cannot be read: %w", err)
	}
	for _, d := range dirs {
		if id := d.Name(); r.Box(id) == nil && !keep(id) {
			what := filepath.Join(r.world.dir, id)
			if _, err := os.Lstat(what); err != nil {
				continue // removed meanwhile
			}
			found = append(found, runtime.Orphan{ID: id, Kind: "directory", What: what, Err: os.RemoveAll(what)})
		}
	}
	return found, nil
}

// KillGuest ends a box's guest, as the machine's OOM killer would.
func (r *Runtime) KillGuest(id string) error {
	b := r.Box(id)
	if b == nil {
		return errdefs.Userf(errdefs.NotFound, "box "+id, "name a live one", "there is none")
	}
	b.Kill()
	return nil
}

// Close implements runtime.Runtime.
func (r *Runtime) Close() error { return nil }

// Box gives a box of this runtime's directory by id, whoever made it, or nil.
func (r *Runtime) Box(id string) *Box {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	return r.world.boxes[id]
}

// IDs lists the boxes that exist, dead ones included.
func (r *Runtime) IDs() []string {
	var ids []string
	for id := range r.world.all() {
		ids = append(ids, id)
	}
	return ids
}

func (w *world) all() map[string]*Box {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]*Box, len(w.boxes))
	for id, b := range w.boxes {
		out[id] = b
	}
	return out
}
