package control

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/session"
)

// keyWindow is how long an idempotency key stands.
const keyWindow = 24 * time.Hour

// MaxCount is the most sessions that one create makes.
const MaxCount = 32_768

type requestKey struct{ project, key string }

// request is a create call in flight. Callers with the same key share it.
type request struct {
	id              string
	project, digest string
	key             string
	made            time.Time // when the key was recorded
	recorded        bool      // the key is stored
	items           []*item

	ctx    context.Context // its end stops what is not made yet
	cancel context.CancelFunc
	done   chan struct{} // closed when every item is accepted or settled, and nothing is made any more

	mu       sync.Mutex
	settled  []int // items in the order in which they were settled
	accepted []int // … placed, queued or settled
	changed  chan struct{}
	left     int // items that are not settled
	onEnd    func()
}

// item is one session of a create.
type item struct {
	r     *request
	index int

	// guarded by r.mu
	live      *live // nil before it is made, and for one that had ended before
	result    CreateResult
	isSettled bool
	accepted  bool
}

func newRequest(ctx context.Context, project string, req *CreateRequest, id string, made time.Time) *request {
	r := &request{
		id: id, project: project, digest: req.Digest, key: req.Key, made: made,
		items: make([]*item, req.Count), left: req.Count,
		done: make(chan struct{}), changed: make(chan struct{}),
	}
	for i := range r.items {
		r.items[i] = &item{r: r, index: i}
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// settle gives an item its outcome; only the first counts.
func (it *item) settle(res CreateResult) {
	r := it.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if it.isSettled {
		return
	}
	it.isSettled, it.result = true, res
	r.settled = append(r.settled, it.index)
	it.acceptLocked()
	r.left--
	if r.left == 0 && r.onEnd != nil {
		r.onEnd()
	}
	r.tellLocked()
}

// accept says that the item is durable, and placed or queued.
func (it *item) accept(l *live) {
	r := it.r
	r.mu.Lock()
	defer r.mu.Unlock()
	it.live = l
	it.acceptLocked()
	r.tellLocked()
}

func (it *item) acceptLocked() {
	if !it.accepted {
		it.accepted = true
		it.r.accepted = append(it.r.accepted, it.index)
	}
}

func (r *request) tellLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// after gives the items answered since n were seen, and what to wait on for more.
func (r *request) after(n int, noWait bool) (indices []int, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	order := r.settled
	if noWait {
		order = r.accepted
	}
	return order[n:len(order):len(order)], r.changed
}

// ErrStarting is in the error of a create whose caller's time was over when no session of it waited for room any
// more: a box was being made, or its start command not ready.
var ErrStarting = errors.New("a box is being started")

// late is the error of a caller who waits no longer.
func (r *request) late(why error) error {
	e := *errdefs.From(why)
	r.mu.Lock()
	items := slices.Clone(r.items)
	lives := make([]*live, 0, len(items))
	for _, it := range items {
		if it.live != nil && !it.isSettled {
			lives = append(lives, it.live)
		}
	}
	r.mu.Unlock()
	for _, l := range lives {
		l.mu.Lock()
		placed := l.row.Phase == session.Scheduled
		l.mu.Unlock()
		if !placed {
			return &e
		}
	}
	if len(lives) > 0 {
		e.Cause = errors.Join(why, ErrStarting)
	}
	return &e
}

// answer gives an item's outcome as of now.
func (r *request) answer(c *Control, i int) CreateResult {
	r.mu.Lock()
	it := r.items[i]
	res, l, settled := it.result, it.live, it.isSettled
	r.mu.Unlock()
	if settled || l == nil {
		return res
	}
	s := c.show(l)
	return CreateResult{Session: s, Err: s.Error}
}

// lives gives the sessions that were made and have not ended.
func (r *request) lives() []*live {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*live
	for _, it := range r.items {
		if it.live != nil {
			out = append(out, it.live)
		}
	}
	return out
}
