package server

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Lock makes the data directory (0700) and takes it for this process; release gives it back.
func Lock(dataDir string) (release func() error, err error) {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "directory "+dataDir, "name another with --data-dir", "%w", err)
	}
	if err := os.Chmod(dataDir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dataDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errdefs.Userf(errdefs.Conflict, "directory "+dataDir, "stop it, or name another with --data-dir", "a server already uses it")
		}
		return nil, err
	}
	return f.Close, nil
}
