package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/store/db"
)

// readers is how many connections read beside the writer.
const readers = 4

// Store is an open database. All methods are safe for concurrent use. Make one with Open.
type Store struct {
	write *sql.DB
	read  *sql.DB
	q     *db.Queries // prepared on read
	w     *committer
}

// Open opens the SQLite database at path, makes it if it is absent, and brings
// its schema up to date. Commits are durable (synchronous FULL) when a write returns.
func Open(ctx context.Context, path string) (*Store, error) {
	// A commit on ext4 waits half as long for fdatasync, which keeps it just as durable.
	if _, err := sqlite.Fdatasync(true); err != nil && !errors.Is(err, sqlite.ErrFdatasyncUnavailable) {
		return nil, failed("open", err)
	}
	dsn := func(more string) string {
		return "file:" + url.PathEscape(path) + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)" + more
	}
	s := &Store{}
	var err error
	if s.write, err = sql.Open("sqlite", dsn("&_txlock=immediate")); err != nil {
		return nil, failed("open", err)
	}
	s.write.SetMaxOpenConns(1)
	if s.read, err = sql.Open("sqlite", dsn("&_pragma=query_only(1)")); err != nil {
		return nil, errors.Join(failed("open", err), s.write.Close())
	}
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.read.Close(), s.write.Close())
	}
	return s, nil
}

func (s *Store) start(ctx context.Context) error {
	if err := migrate(ctx, s.write, migrations); err != nil {
		return err
	}
	q, err := db.Prepare(ctx, s.read)
	if err != nil {
		return failed("prepare", err)
	}
	s.q = q
	if s.w, err = newCommitter(ctx, s.write, sqliteDialect); err != nil {
		return errors.Join(err, q.Close())
	}
	return nil
}

// Close waits for writes that were handed over, and closes the database.
func (s *Store) Close() error {
	return errors.Join(s.w.close(), s.q.Close(), s.read.Close(), s.write.Close())
}

// Flush returns when everything handed over before is committed or has failed.
// What was handed over with UpdateBehind is then seen by reads, but not synced.
func (s *Store) Flush(ctx context.Context) error {
	result := make(chan error, 1)
	s.w.behind(item{ctx: ctx, lazy: true, done: func(err error) { result <- err }})
	return <-result
}

// failed makes an infrastructure error of what the database said; a typed error passes.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*errdefs.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code()&0xff == sqlite3.SQLITE_FULL {
		d := errdefs.Infraf(errdefs.ScopePlatform, errdefs.DiskFull, "session store", "%s: %w", what, err)
		d.Remedy = "free space on the disk of the data directory"
		return d
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errdefs.From(err)
	}
	return errdefs.Infraf(errdefs.ScopePlatform, errdefs.Unavailable, "session store", "%s: %w", what, err)
}

func notFound(object, remedy string) error {
	return errdefs.Userf(errdefs.NotFound, object, remedy, "there is no such thing")
}

func isNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

// one turns a statement that must touch one row and did not into err.
func one(n int64, err, absent error) error {
	switch {
	case err != nil:
		return err
	case n == 0:
		return absent
	case n > 1:
		return fmt.Errorf("touched %d rows instead of one", n)
	}
	return nil
}
