package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/store/db"
)

// maxBatch bounds how much work one transaction takes, and with it how long the first of a batch waits.
const maxBatch = 256

// committer is the only writer. It commits at once when it is idle; what arrives
// during a commit makes the next transaction. There is no timer: one caller alone pays one sync,
// many callers share it. Items are carried out in the order of arrival, each in a
// savepoint of its own, so that one that fails leaves the others whole.
type committer struct {
	conn    *sql.Conn
	q       *db.Queries
	begin   string
	items   chan item
	stopped chan struct{}

	mu     sync.RWMutex // held for reading while an item is handed over
	closed bool
}

// work is one item's statements. It must not keep q. An error undoes the item.
type work func(ctx context.Context, q *db.Queries) error

type item struct {
	ctx  context.Context
	fn   work
	err  error
	done func(error)
}

func newCommitter(ctx context.Context, pool *sql.DB, begin string) (*committer, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, failed("open", err)
	}
	q, err := db.Prepare(ctx, conn)
	if err != nil {
		return nil, failed("prepare", errors.Join(err, conn.Close()))
	}
	w := &committer{conn: conn, q: q, begin: begin, items: make(chan item, maxBatch), stopped: make(chan struct{})}
	go w.run()
	return w, nil
}

// do carries fn out and returns when it is durable. Work that has begun is
// finished even if ctx ends, so that the answer is never in doubt.
func (w *committer) do(ctx context.Context, fn work) error {
	result := make(chan error, 1)
	w.behind(ctx, fn, func(err error) { result <- err })
	return <-result
}

// behind hands fn over and returns; done is called, on the committer's goroutine, when it is durable or has failed.
// Done must be quick and must not wait for another write.
func (w *committer) behind(ctx context.Context, fn work, done func(error)) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if w.closed {
		done(errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "session store", "it is closed"))
		return
	}
	w.items <- item{ctx: ctx, fn: fn, done: done}
}

func (w *committer) close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.items)
	}
	w.mu.Unlock()
	<-w.stopped
	return errors.Join(w.q.Close(), w.conn.Close())
}

func (w *committer) run() {
	defer close(w.stopped)
	batch := make([]item, 0, maxBatch)
	for first := range w.items {
		batch = w.gather(append(batch[:0], first))
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
	if _, err := w.conn.ExecContext(ctx, w.begin); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			if _, rerr := w.conn.ExecContext(ctx, "rollback"); rerr != nil {
				err = errors.Join(err, rerr)
			}
		}
	}()
	for i := range batch {
		if err := w.carryOut(ctx, &batch[i]); err != nil {
			return err
		}
	}
	_, err = w.conn.ExecContext(ctx, "commit")
	return err
}

// carryOut sets it.err, or gives an error that spoils the transaction.
func (w *committer) carryOut(ctx context.Context, it *item) error {
	if it.err = context.Cause(it.ctx); it.err != nil {
		return nil
	}
	if _, err := w.conn.ExecContext(ctx, "savepoint item"); err != nil {
		return err
	}
	if it.err = guarded(ctx, it.fn, w.q); it.err != nil {
		if _, err := w.conn.ExecContext(ctx, "rollback to savepoint item"); err != nil {
			return fmt.Errorf("%w (after %w)", err, it.err)
		}
	}
	_, err := w.conn.ExecContext(ctx, "release savepoint item")
	return err
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
