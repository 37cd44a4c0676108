package node

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

const (
	journalName = "boxes.journal"
	lockName    = "node.lock"
	// compactMin is the size below which the journal is not rewritten while the node runs.
	compactMin   = 4 << 20
	lockPatience = time.Second
)

// journal is the append-only file of records. It has to survive the daemon, not the machine (the
// boxes do not survive it either), so that it is never synced: an append is one write into the page cache.
// Safe for concurrent use.
type journal struct {
	dir  string
	lock *os.File // flock: one node per data directory

	mu        sync.Mutex
	f         *os.File
	size      int64
	base      int64 // size after the last compaction
	compactMu sync.Mutex

	// before, if set, is called before each append with the number of appends so far; tests fail there.
	before  func(n int64) error
	appends atomic.Int64
}

// openJournal locks dir, reads the journal and cuts off a torn last line.
func openJournal(dir string) (*journal, *replayed, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "data directory", "it cannot be made: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "data directory", "its lock cannot be opened: %w", err)
	}
	if !tryLock(lock) {
		_ = lock.Close()
		return nil, nil, errdefs.Userf(errdefs.Conflict, "data directory "+dir, "stop the other one, or give this one its own data directory", "another node uses it")
	}
	j := &journal{dir: dir, lock: lock}
	p, err := j.load()
	if err != nil {
		_ = lock.Close()
		return nil, nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "journal", "it cannot be read: %w", err)
	}
	return j, p, nil
}

// tryLock is patient for a moment: the descriptors of a node that was killed are
// closed a little later, and those that a child of it had inherited when it is executed.
func tryLock(f *os.File) bool {
	for end := time.Now().Add(lockPatience); ; time.Sleep(5 * time.Millisecond) {
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

func (j *journal) path() string { return filepath.Join(j.dir, journalName) }

func (j *journal) load() (*replayed, error) {
	f, err := os.OpenFile(j.path(), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	p, err := replay(f)
	if err == nil {
		err = f.Truncate(p.size)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	j.f, j.size, j.base = f, p.size, p.size
	return p, nil
}

// append writes one record; when it returns, the record survives a kill -9.
func (j *journal) append(r *record) error {
	line, err := r.encode()
	if err != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "journal", "%w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.before != nil {
		if err := j.before(j.appends.Load()); err != nil {
			return err
		}
	}
	if j.f == nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Unavailable, "journal", "the node is stopped")
	}
	if _, err := j.f.Write(line); err != nil {
		// A part of a line would damage the next one.
		if terr := j.f.Truncate(j.size); terr != nil {
			err = errors.Join(err, terr)
		}
		return unwritable(err)
	}
	j.size += int64(len(line))
	j.appends.Add(1)
	return nil
}

// unwritable is the error of a journal that cannot be written.
func unwritable(err error) error {
	e := errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "journal", "it cannot be written: %w", err)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		e.Reason, e.Remedy = errdefs.DiskFull, "free space on the disk of the data directory; `dsec down` frees that of its boxes"
	}
	return e
}

// rewrite replaces the journal by what p says.
func (j *journal) rewrite(p *replayed) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.replace(p, j.size)
}

// compact rewrites the journal when most of it is about boxes that are gone. Appends wait only
// while the records that arrived meanwhile are copied.
func (j *journal) compact() error {
	j.compactMu.Lock()
	defer j.compactMu.Unlock()
	j.mu.Lock()
	f, size, due := j.f, j.size, j.f != nil && j.size > compactMin && j.size > 4*j.base
	j.mu.Unlock()
	if !due {
		return nil
	}
	p, err := replay(io.NewSectionReader(f, 0, size))
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return nil
	}
	return j.replace(p, size)
}

// replace writes p and the records from offset on into a new file and renames it over the old
// one. j.mu is held.
func (j *journal) replace(p *replayed, offset int64) (err error) {
	tmp, err := os.OpenFile(j.path()+".new", os.O_CREATE|os.O_TRUNC|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	w := bufio.NewWriterSize(tmp, 256<<10)
	var n int64
	for _, r := range p.records() {
		line, err := r.encode()
		if err != nil {
			return err
		}
		n += int64(len(line))
		_, _ = w.Write(line) // Flush tells
	}
	tail, err := io.Copy(w, io.NewSectionReader(j.f, offset, j.size-offset))
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), j.path()); err != nil {
		return err
	}
	_ = j.f.Close()
	j.f, j.size, j.base = tmp, n+tail, n
	return nil
}

// close lets the next node have the data directory.
func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return nil
	}
	err := j.f.Close()
	j.f = nil
	return errors.Join(err, j.lock.Close())
}
