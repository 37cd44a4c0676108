package control

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/store"
)

// live is a session that has not ended.
type live struct {
	rec  store.Session // what it was asked to be; its Row is of the beginning
	root *root         // nil for one that was adopted and whose template is gone

	// making ends when the making of the box is to be given up.
	making     context.Context
	stopMaking context.CancelFunc
	// inserted is closed when the insert is durable or has failed with insertErr.
	inserted  chan struct{}
	insertErr *errdefs.Error
	// busy holds a token while somebody commands the node about this session.
	busy chan struct{}

	network atomic.Pointer[spec.Network] // what took the place of rec's; nil: nothing did

	heartbeat atomic.Int64 // when the owner last gave a sign of life, in ns since Control.began; 0: never

	mu      sync.Mutex
	payload *payload    // until the box has it
	row     session.Row // the newest state
	shown   session.Row // what is told: row, but an end is told only when it is durable
	stored  int64       // version last handed to the store
	broken  bool        // a write behind failed; the stored row is older
	changed chan struct{}
	items   []*item // of creates that wait
	ending  bool    // a reclaim runs
	purge   bool    // forget it when it has ended: nobody ever learned its id
	audit   *time.Timer
	up      *time.Timer // wakes when the deadline has come
}

// payload is what a box needs and nobody else may keep.
type payload struct {
	env     []string // secrets included
	code    *code    // nil for none
	codeDir string
	network *policy.Phases
	shared  *node.Shared        // by the sessions of one request
	mounts  []runtime.DataMount // the platform's own
	trusts  bool                // the project's authority, by the mounts
}

func newLive(ctx context.Context, rec store.Session) *live {
	l := &live{
		rec: rec, row: rec.Row, shown: rec.Row, stored: rec.Version,
		inserted: make(chan struct{}), busy: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	l.making, l.stopMaking = context.WithCancel(ctx)
	return l
}

// dropPayload forgets what nobody needs any more.
func (l *live) dropPayload() {
	l.mu.Lock()
	p := l.payload
	l.payload = nil
	l.mu.Unlock()
	if p != nil {
		p.code.drop()
	}
}

// current gives the newest state, told or not.
func (l *live) current() session.Row {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.row
}

// look gives what is told, and a channel that is closed when that changes.
func (l *live) look() (session.Row, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shown, l.changed
}

// tell shows the newest state to everybody. l.mu is held.
func (l *live) tell() {
	l.shown = l.row
	close(l.changed)
	l.changed = make(chan struct{})
	if l.shown.Phase.AtLeast(session.Running) {
		for _, it := range l.items {
			it.settle(CreateResult{Session: view(&l.rec, l.shown), Err: l.shown.Error})
		}
		l.items = nil
	}
}

// await adds an item that is settled when the session runs or has ended.
func (l *live) await(it *item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown.Phase.AtLeast(session.Running) {
		it.settle(CreateResult{Session: view(&l.rec, l.shown), Err: l.shown.Error})
		return
	}
	l.items = append(l.items, it)
}

// lock takes the right to command the node about the session.
func (l *live) lock(ctx context.Context) error {
	select {
	case l.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errdefs.From(ctx.Err())
	}
}

func (l *live) unlock() { <-l.busy }

func (l *live) stopTimers() {
	l.stopMaking()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.audit != nil {
		l.audit.Stop()
	}
	if l.up != nil {
		l.up.Stop()
	}
}

// view is a session as clients see it.
func view(rec *store.Session, r session.Row) *Session {
	return &Session{
		ID: rec.ID, Project: rec.Project, Job: rec.Job, Template: rec.Template, Labels: rec.Labels, Env: rec.Env, Spec: rec.Spec,
		Phase: string(r.Phase), Desired: string(r.Desired), Reclaim: string(r.Reclaim), Reason: r.Reason, Error: r.Error,
		Node: r.Node, Box: r.Box, Pooled: r.Pooled, ColdReason: r.ColdReason, Version: r.Version,
		Created: r.Created, Started: r.Started, Ended: r.Ended, Updated: r.Updated, Lease: rec.Lease,
		Deadline: r.Deadline, Lifetime: r.Lifetime, AtDeadline: string(r.AtDeadline),
	}
}
