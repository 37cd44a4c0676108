package layer

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsec-platform/dsec/internal/layer/filelock"
)

// staging is a locked directory below tmp/. Its maker's death, however it comes,
// frees the lock, and the next Open removes the directory.
type staging struct {
	dir  string
	lock *filelock.Lock
}

func (s *Store) stage() (*staging, error) {
	for {
		dir := filepath.Join(s.dir, "tmp", rand.Text())
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
		// A sweeper of another process may see the directory before it is locked.
		l, err := filelock.TryExisting(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, filelock.ErrLocked) {
			continue
		}
		if err != nil {
			os.Remove(dir)
			return nil, err
		}
		return &staging{dir: dir, lock: l}, nil
	}
}

// Close removes what is left in the staging directory.
func (st *staging) Close() error {
	err := removeTree(st.dir)
	st.lock.Close()
	return err
}

// removeTree is os.RemoveAll that also gets through directories which their owner
// cannot enter (only a store without root meets them).
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || os.Geteuid() == 0 {
		return err
	}
	filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// sweep removes the staging directories whose makers are gone.
func (s *Store) sweep() {
	tmp := filepath.Join(s.dir, "tmp")
	entries, err := os.ReadDir(tmp)
	if err != nil {
		s.opts.Log.Warn("cannot look for half-made layers", "dir", tmp, "err", err)
		return
	}
	for _, e := range entries {
		p := filepath.Join(tmp, e.Name())
		l, err := filelock.TryExisting(p)
		if err != nil {
			continue // in use, or gone already
		}
		if err := removeTree(p); err != nil {
			s.opts.Log.Warn("cannot remove a half-made layer", "path", p, "err", err)
		} else {
			s.opts.Log.Info("removed a half-made layer", "path", p)
		}
		l.Close()
	}
}

// TempDir gives a directory beside the layers for a caller's own half-made
// files, with the same promise: it does not outlive its maker.
func (s *Store) TempDir() (dir string, remove func(), err error) {
	st, err := s.stage()
	if err != nil {
		return "", nil, err
	}
	return st.dir, func() { st.Close() }, nil
}
