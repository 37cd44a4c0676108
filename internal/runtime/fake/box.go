package fake

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// Box is what exists of a box, whoever has it open. Its methods are a test's
// view from outside.
type Box struct {
	world *world
	id    string
	dir   string

	done     chan struct{} // closed when the guest is gone
	gone     chan struct{} // closed when done is and everything is removed
	endOnce  sync.Once
	goneOnce sync.Once
	events   chan runtime.Event

	mu      sync.Mutex
	config  runtime.Config
	begun   bool // by Prepare; Create goes on from there
	claimed bool
	frozen  bool
	killed  bool
	guest   *host // started by the first Dial
}

func newBox(w *world, cfg runtime.Config) (*Box, error) {
	dir := filepath.Join(w.dir, cfg.ID)
	if err := os.MkdirAll(filepath.Join(dir, "workspace"), 0o700); err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+cfg.ID, "its directory cannot be made: %w", err)
	}
	return &Box{
		world: w, id: cfg.ID, dir: dir, config: cfg,
		done: make(chan struct{}), gone: make(chan struct{}), events: make(chan runtime.Event, 16),
	}, nil
}

// goOn makes a box that was begun the one of cfg, and tells whether it was.
func (b *Box) goOn(cfg runtime.Config) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.begun
	if was {
		b.begun, b.config = false, cfg
	}
	return was
}

// Begun tells whether the box is prepared and not made yet.
func (b *Box) Begun() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// Config is what the box was made with, the claim included.
func (b *Box) Config() runtime.Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.config
}

// Frozen tells whether the box is frozen.
func (b *Box) Frozen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.frozen
}

// AgentKilled tells whether the agent was killed.
func (b *Box) AgentKilled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.killed
}

// Kill ends the guest, as an attack from inside or a fault of the machine would.
func (b *Box) Kill() {
	b.endOnce.Do(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.guest != nil {
			b.guest.kill()
		}
		close(b.done)
		close(b.events)
	})
}

// Warn sends an event from the box; a slow reader loses it.
func (b *Box) Warn(e runtime.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended() {
		return
	}
	e.Time = time.Now()
	select {
	case b.events <- e:
	default:
	}
}

func (b *Box) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// remove ends the box and proves that nothing is left.
func (b *Box) remove() error {
	b.Kill()
	if err := os.RemoveAll(b.dir); err != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+b.id, "its directory cannot be removed: %w", err)
	}
	b.world.mu.Lock()
	delete(b.world.boxes, b.id)
	b.world.mu.Unlock()
	b.goneOnce.Do(func() { close(b.gone) })
	return nil
}

// handle is one daemon's hold on a box.
type handle struct {
	rt *Runtime
	*Box
}

var _ runtime.Box = (*handle)(nil)

const recordVersion = 1

type recordData struct {
	V   int    `json:"v"`
	Dir string `json:"dir"`
}

// ID implements runtime.Box.
func (h *handle) ID() string { return h.id }

// Record implements runtime.Box.
func (h *handle) Record() runtime.Record {
	data, _ := json.Marshal(recordData{V: recordVersion, Dir: h.dir}) // plain strings always encode
	return runtime.Record{ID: h.id, Runtime: Name, Data: data}
}

// Dial implements runtime.Box.
func (h *handle) Dial(ctx context.Context) (net.Conn, error) {
	if err := h.usable(); err != nil {
		return nil, err
	}
	if f := h.rt.hook().Dial; f != nil {
		if err := f(ctx, h.id); err != nil {
			return nil, err
		}
	}
	g, err := h.start()
	if err != nil {
		return nil, err
	}
	return g.dial()
}

func (b *Box) start() (*host, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended() {
		return nil, gone(b.id)
	}
	if b.guest == nil {
		b.guest = startGuest(b.dir, &b.config.Claim)
	}
	return b.guest, nil
}

// Claim implements runtime.Box.
func (h *handle) Claim(ctx context.Context, c runtime.Claim) error {
	if err := h.usable(); err != nil {
		return err
	}
	if f := h.rt.hook().Claim; f != nil {
		if err := f(ctx, h.id); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return errdefs.From(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.config.Pooled || h.claimed || h.guest != nil {
		return errdefs.Infraf(errdefs.ScopeBox, errdefs.Conflict, "box "+h.id, "it is not an unused pooled box")
	}
	h.claimed, h.config.Claim = true, c
	return nil
}

// SetLimits implements runtime.Box.
func (h *handle) SetLimits(_ context.Context, l runtime.Limits) error {
	if err := h.usable(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.config.Limits = l
	return nil
}

// Usage implements runtime.Box. Nothing is counted; the limits are told.
func (h *handle) Usage(context.Context) (runtime.Usage, error) {
	if err := h.usable(); err != nil {
		return runtime.Usage{}, err
	}
	c := h.Config()
	return runtime.Usage{MemoryLimit: c.Limits.Memory, StoreLimit: c.StoreSize}, nil
}

// Freeze implements runtime.Box: it is noted, and stops nothing.
func (h *handle) Freeze(context.Context) error { return h.freeze(true) }

// Thaw implements runtime.Box.
func (h *handle) Thaw(context.Context) error { return h.freeze(false) }

func (h *handle) freeze(on bool) error {
	if err := h.usable(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen = on
	return nil
}

// KillAgent implements runtime.Box: it is noted, and kills nothing.
func (h *handle) KillAgent(context.Context) error {
	if err := h.usable(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.killed = true
	return nil
}

// Done implements runtime.Box.
func (h *handle) Done() <-chan struct{} { return h.done }

// Events implements runtime.Box.
func (h *handle) Events() <-chan runtime.Event { return h.events }

// Destroy implements runtime.Box.
func (h *handle) Destroy(ctx context.Context) error {
	if err := h.rt.alive(); err != nil {
		return err
	}
	select {
	case <-h.gone:
		return nil
	default:
	}
	if f := h.rt.hook().Destroy; f != nil {
		if err := f(ctx, h.id); err != nil {
			return err
		}
	}
	return h.remove()
}

func (h *handle) usable() error {
	if err := h.rt.alive(); err != nil {
		return err
	}
	if h.ended() {
		return gone(h.id)
	}
	return nil
}

func gone(id string) error {
	return errdefs.Policyf(errdefs.BoxGone, "box "+id, "make another one", "its guest does not live any more")
}
