package layer

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

func badEntry(name, format string, args ...any) error {
	return errdefs.Userf(errdefs.InvalidArgument, fmt.Sprintf("entry %.200q", name), "check where the archive comes from", format, args...)
}

// entryError says which entry err is about. What names do not allow is the
// archive's fault; the rest is this machine's.
func entryError(name string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*errdefs.Error](err); ok {
		return err
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		switch errno {
		case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EINVAL, unix.EPERM, unix.EISDIR, unix.EMLINK, unix.EEXIST:
		default:
			return fmt.Errorf("entry %.200q: %w", name, err)
		}
	}
	return badEntry(name, "%w", err)
}
