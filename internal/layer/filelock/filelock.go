// Package filelock is flock(2) between processes that share a data directory.
// A lock belongs to one open descriptor, so it ends with the process however
// that dies; two opens of one path exclude each other inside a process too.
package filelock

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked says that somebody else holds a lock that excludes the wanted one.
var ErrLocked = errors.New("locked by another user of it")

// Lock is a held lock. Close releases it.
type Lock struct{ f *os.File }

// Close releases the lock. It is idempotent.
func (l *Lock) Close() error {
	if l == nil || l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	return f.Close()
}

// Shared waits until nobody holds path exclusively.
func Shared(path string) (*Lock, error) { return acquire(path, unix.LOCK_SH, true) }

// TryShared is Shared, but gives ErrLocked instead of waiting.
func TryShared(path string) (*Lock, error) { return acquire(path, unix.LOCK_SH|unix.LOCK_NB, true) }

// Exclusive waits until nobody else holds path.
func Exclusive(path string) (*Lock, error) { return acquire(path, unix.LOCK_EX, true) }

// TryExclusive is Exclusive, but gives ErrLocked instead of waiting.
func TryExclusive(path string) (*Lock, error) { return acquire(path, unix.LOCK_EX|unix.LOCK_NB, true) }

// TryExisting is TryExclusive for a file or directory that exists already; else
// the error is fs.ErrNotExist.
func TryExisting(path string) (*Lock, error) { return acquire(path, unix.LOCK_EX|unix.LOCK_NB, false) }

// acquire opens path (making a file when create is set), locks it, and tries
// again when the path was unlinked or replaced between the two.
func acquire(path string, how int, create bool) (*Lock, error) {
	for {
		flags := os.O_RDONLY
		if create {
			flags = os.O_RDWR | os.O_CREATE
		}
		f, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f, how); err != nil {
			f.Close()
			return nil, err
		}
		same, err := isStill(f, path)
		if same {
			return &Lock{f}, nil
		}
		f.Close()
		if err != nil && (!create || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
	}
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		case err != nil:
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		default:
			return nil
		}
	}
}

func isStill(f *os.File, path string) (bool, error) {
	now, err := os.Lstat(path)
	if err != nil {
		return false, err
	}
	held, err := f.Stat()
	if err != nil {
		return false, err
	}
	return os.SameFile(now, held), nil
}
