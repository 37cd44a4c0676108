package files

import "golang.org/x/sys/unix"

// inPlace is a file that is written where it is.
type inPlace struct {
	fd      int
	dirfd   int    // where the file was made by this op; -1: it was there before
	name    string // in dirfd
	emptied bool   // its old content is gone
	written int64
}

func (f *inPlace) close() {
	for _, fd := range []int{f.fd, f.dirfd} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// undo takes back what was written and made, unless somebody else writes the file too. Of an old
// file it leaves an empty one. It acts with the power of the calling thread.
func (f *inPlace) undo() {
	var open, named unix.Stat_t
	if unix.Fstat(f.fd, &open) != nil || open.Size-f.written >= chunk {
		return
	}
	// That the one or the other fails does not matter beside the error that is told.
	if f.emptied {
		_ = unix.Ftruncate(f.fd, 0)
	}
	if f.dirfd >= 0 && unix.Fstatat(f.dirfd, f.name, &named, unix.AT_SYMLINK_NOFOLLOW) == nil && named.Ino == open.Ino && named.Dev == open.Dev {
		_ = unix.Unlinkat(f.dirfd, f.name, 0)
	}
}
