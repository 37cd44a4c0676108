package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/store/db"
)

// maxBatch bounds how much work one transaction takes, and with it how long the first of a batch waits.
const maxBatch = 256

// committer is the only writer. It commits at once when it is idle; what arrives
// during a commit makes the next transaction. There is no timer: one caller alone pays one sync,
// many callers share it. Items are carried out in the order of arrival, each in a
// savepoint of its own, so that one that fails leaves the others whole.
//
// A transaction of lazy items alone is not synced: it survives the death of the process,
// and that of the machine only with the next synced one, before which it stands in the log.
// Lazy items, which nobody waits for, linger: the write of RUNNING does not compete with the
// session's first op for a core, and often goes with the next insert.
type committer struct {
	conn    *sql.Conn
	q       *db.Queries
	text    map[string]*sql.Stmt // of the statements round the items
	d       dialect
	synced  bool // how the connection commits now
	items   chan item
	stopped chan struct{}

	mu     sync.RWMutex // held for reading while an item is handed over
	closed bool
}

// dialect is what the engines say differently.
type dialect struct {
	begin        string // begins a transaction with the write lock
	synced, lazy string // choose how the next transactions are committed
}

var sqliteDialect = dialect{begin: "begin immediate", synced: "pragma synchronous = full", lazy: "pragma synchronous = normal"}

// work is one item's statements. It must not keep q. An error undoes the item.
type work func(ctx context.Context, q *db.Queries) error

type item struct {
	ctx  context.Context
	fn   work // nil: only waits for its place in the order
	lazy bool
	err  error
	done func(error)
}

func newCommitter(ctx context.Context, pool *sql.DB, d dialect) (*committer, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, failed("open", err)
	}
	q, err := db.Prepare(ctx, conn)
	if err != nil {
		return nil, failed("prepare", errors.Join(err, conn.Close()))
	}
	w := &committer{conn: conn, q: q, text: map[string]*sql.Stmt{}, d: d, items: make(chan item, maxBatch), stopped: make(chan struct{})}
	for _, text := range []string{d.begin, d.synced, d.lazy, savepoint, undo, release, commit, rollback} {
		if w.text[text], err = conn.PrepareContext(ctx, text); err != nil {
			return nil, failed("prepare", errors.Join(err, w.release()))
		}
	}
	go w.run()
	return w, nil
}

const (
	savepoint = "savepoint item"
	undo      = "rollback to savepoint item"
	release   = "release savepoint item"
	commit    = "commit"
	rollback  = "rollback"
)

func (w *committer) say(ctx context.Context, text string) error {
	_, err := w.text[text].ExecContext(ctx)
	return err
}

func (w *committer) release() error {
	var errs []error
	for _, s := range w.text {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, w.q.Close(), w.conn.Close())...)
}

// do carries fn out and returns when it is durable. Work that has begun is
// finished even if ctx ends, so that the answer is never in doubt.
func (w *committer) do(ctx context.Context, fn work) error {
	result := make(chan error, 1)
	w.behind(item{ctx: ctx, fn: fn, done: func(err error) { result <- err }})
	return <-result
}

// behind hands an item over and returns; done is called, on the committer's goroutine, when
// it is committed or has failed. Done must be quick and must not wait for another write.
func (w *committer) behind(it item) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		it.done(errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "session store", "it is closed"))
		return
	}
	w.items <- it
}

func (w *committer) close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.items)
	}
	w.mu.Unlock()
	<-w.stopped
	return w.release()
}

func (w *committer) run() {
	defer close(w.stopped)
	batch := make([]item, 0, maxBatch)
	for first := range w.items {
		batch = append(batch[:0], first)
		if first.lingers() {
			batch = w.linger(batch)
		}
		batch = w.gather(batch)
		if err := w.commit(batch); err != nil {
			for i := range batch {
				batch[i].err = failed("commit", err)
			}
		}
		for i := range batch {
			batch[i].done(failed("write", batch[i].err))
			batch[i] = item{}
		}
	}
}

// lingers tells whether nobody waits for the item.
func (it *item) lingers() bool { return it.lazy && it.fn != nil }

// lingering is how long a lazy item waits for company.
const lingering = 10 * time.Millisecond

// linger collects lazy items until somebody waits for one, or long enough.
func (w *committer) linger(batch []item) []item {
	enough := time.NewTimer(lingering)
	defer enough.Stop()
	for len(batch) < maxBatch {
		select {
		case it, ok := <-w.items:
			if !ok {
				return batch
			}
			batch = append(batch, it)
			if !it.lingers() {
				return batch
			}
		case <-enough.C:
			return batch
		}
	}
	return batch
}

// gather takes what waits already, without waiting for more.
func (w *committer) gather(batch []item) []item {
	for len(batch) < maxBatch {
		select {
		case it, ok := <-w.items:
			if !ok {
				return batch
			}
			batch = append(batch, it)
		default:
			return batch
		}
	}
	return batch
}

// commit carries a batch out in one transaction. An error is about all of them.
func (w *committer) commit(batch []item) (err error) {
	ctx := context.Background()
	if !slices.ContainsFunc(batch, func(it item) bool { return it.fn != nil }) {
		return nil
	}
	if err := w.choose(ctx, batch); err != nil {
		return err
	}
	if err := w.say(ctx, w.d.begin); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.say(ctx, rollback))
		}
	}()
	if len(batch) == 1 { // needs no savepoint: undoing it undoes all
		it := &batch[0]
		if it.err = context.Cause(it.ctx); it.err == nil {
			it.err = guarded(ctx, it.fn, w.q)
		}
		if it.err != nil {
			return it.err
		}
		return w.say(ctx, commit)
	}
	for i := range batch {
		if err := w.carryOut(ctx, &batch[i]); err != nil {
			return err
		}
	}
	return w.say(ctx, commit)
}

// choose has the batch synced unless all of it is lazy.
func (w *committer) choose(ctx context.Context, batch []item) error {
	synced := slices.ContainsFunc(batch, func(it item) bool { return !it.lazy })
	if synced == w.synced {
		return nil
	}
	how := w.d.lazy
	if synced {
		how = w.d.synced
	}
	if err := w.say(ctx, how); err != nil {
		return err
	}
	w.synced = synced
	return nil
}

// carryOut sets it.err, or gives an error that spoils the transaction.
func (w *committer) carryOut(ctx context.Context, it *item) error {
	if it.err = context.Cause(it.ctx); it.err != nil || it.fn == nil {
		return nil
	}
	if err := w.say(ctx, savepoint); err != nil {
		return err
	}
	if it.err = guarded(ctx, it.fn, w.q); it.err != nil {
		if err := w.say(ctx, undo); err != nil {
			return fmt.Errorf("%w (after %w)", err, it.err)
		}
	}
	return w.say(ctx, release)
}

// guarded keeps a panic of one item from taking the writer, and with it everybody's writes, away.
func guarded(ctx context.Context, fn work, q *db.Queries) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errdefs.Infraf(errdefs.ScopePlatform, errdefs.Internal, "session store", "a write panicked: %v", p)
		}
	}()
	return fn(ctx, q)
}
