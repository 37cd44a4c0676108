// Package store gives each box one size-limited place for everything that it
// writes and that lives as long as it: u and w (upper and work directory of a
// writable root) and d<n> (writable paths of a read-only one).
//
// Kinds, in the order in which a disk store is tried: a directory under a
// project quota, a ready-made ext4 image on a loop device, and tmpfs, whose
// pages count towards the memory of the box.
package store

import (
	"errors"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
)

// Kind is how a store is made.
type Kind string

const (
	Tmpfs Kind = "tmpfs"
	Loop  Kind = "loop-ext4"
	Quota Kind = "project-quota"
)

// Store is the writable place of one box. It implements rootfs.Area.
type Store struct {
	kind    Kind
	fd      int
	ids     bool
	size    int64
	owner   int
	device  string // loop device of an image
	destroy func() error
}

// FD is the descriptor of the store's root directory.
func (s *Store) FD() int { return s.fd }

// IDs says whether files hold the container's ids.
func (s *Store) IDs() bool { return s.ids }

// Kind says how it is made.
func (s *Store) Kind() Kind { return s.kind }

// Mkdir makes a directory for the box's root.
func (s *Store) Mkdir(name string) error {
	if err := unix.Mkdirat(s.fd, name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return &fs.PathError{Op: "mkdir in store", Path: name, Err: err}
	}
	if s.ids {
		return nil
	}
	return unix.Fchownat(s.fd, name, s.owner, s.owner, unix.AT_SYMLINK_NOFOLLOW)
}

// Used gives the bytes written and the limit.
func (s *Store) Used() (used, limit int64) {
	var st unix.Statfs_t
	if s.fd < 0 || unix.Fstatfs(s.fd, &st) != nil {
		return 0, s.size
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, s.size
}

// Close lets go of the store; a box that lives goes on with it.
func (s *Store) Close() {
	if s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
}

// Destroy removes the store. The box must be dead.
func (s *Store) Destroy() error {
	s.Close()
	if s.destroy == nil {
		return nil
	}
	return s.destroy()
}

// newTmpfs makes a detached tmpfs. ids says whether it will be id-mapped;
// otherwise its files belong to the host's owner.
func newTmpfs(size int64, ids bool, owner int) (*Store, error) {
	fail := func(op string, err error) (*Store, error) {
		return nil, &fs.PathError{Op: op, Path: "tmpfs store", Err: err}
	}
	ctx, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail("open", err)
	}
	defer unix.Close(ctx)
	for _, p := range [][2]string{{"size", strconv.FormatInt(size, 10)}, {"nr_inodes", inodes(size)}, {"mode", "0755"}} {
		if err := unix.FsconfigSetString(ctx, p[0], p[1]); err != nil {
			return fail("set "+p[0], err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fail("create", err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return fail("mount", err)
	}
	return &Store{kind: Tmpfs, fd: fd, ids: ids, size: size, owner: owner}, nil
}

// inodes of a tmpfs grow with its size: each costs about 1 KiB of kernel
// memory that the size does not count.
func inodes(size int64) string { return strconv.FormatInt(max(size/4096, 1024), 10) }

// Resize changes the limit of a tmpfs store in place; other kinds keep theirs.
func (s *Store) Resize(size int64) error {
	if size == s.size {
		return nil
	}
	if s.kind != Tmpfs || s.fd < 0 {
		return &fs.PathError{Op: "resize store", Path: string(s.kind), Err: errors.ErrUnsupported}
	}
	ctx, err := unix.Fspick(s.fd, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return &fs.PathError{Op: "resize store", Path: string(s.kind), Err: err}
	}
	defer unix.Close(ctx)
	err = errors.Join(
		unix.FsconfigSetString(ctx, "size", strconv.FormatInt(size, 10)),
		unix.FsconfigSetString(ctx, "nr_inodes", inodes(size)))
	if err == nil {
		err = unix.FsconfigReconfigure(ctx)
	}
	if err != nil {
		return &fs.PathError{Op: "resize store", Path: string(s.kind), Err: err}
	}
	s.size = size
	return nil
}

// Record is what is kept of a store over a restart of the daemon.
type Record struct {
	Kind Kind  `json:"kind"`
	Size int64 `json:"size"`
	IDs  bool  `json:"ids,omitempty"`
	// Device is the loop device of an image.
	Device string `json:"device,omitempty"`
}

// Record gives it.
func (s *Store) Record() Record { return Record{s.kind, s.size, s.ids, s.device} }

// Is says whether the store is what wanted ("tmpfs" or "disk") asks for.
func (s *Store) Is(wanted string) bool { return (wanted == "tmpfs") == (s.kind == Tmpfs) }
