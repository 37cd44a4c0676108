package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime/native/thread"
)

// A project quota limits a directory tree without an image: the directory and
// all that is made in it carry the box's first host id as project id. A box
// cannot change it: only the first user namespace may.

const (
	fsIocFsGetXattr    = 0x801c581f
	fsIocFsSetXattr    = 0x401c5820
	fsXflagProjInherit = 0x200
	prjQuota           = 2
	qSetQuota          = 0x800008
	qifLimits          = 5 // block and inode limits
	quotaBlock         = 1024
)

type fsxattr struct {
	xflags, extsize, nextents, projid, cowextsize uint32
	_                                             [8]byte
}

type dqblk struct {
	bhardlimit, bsoftlimit, curspace, ihardlimit, isoftlimit, curinodes, btime, itime uint64
	valid                                                                             uint32
	_                                                                                 uint32
}

func (m *Manager) makeQuota(id string, size int64, owner int) (*Store, error) {
	path := m.path(id)
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, err
	}
	err := limitTree(path, uint32(owner), size)
	fd := -1
	if err == nil {
		fd, err = openDir(path)
	}
	if err != nil {
		os.Remove(path)
		return nil, err
	}
	return &Store{kind: Quota, fd: fd, ids: true, size: size, destroy: func() error {
		return errors.Join(m.Remove(id), setQuota(m.o.Dir, uint32(owner), 0))
	}}, nil
}

// limitTree gives an empty directory a project and a limit.
func limitTree(path string, project uint32, size int64) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var attr fsxattr
	if err := ioctl(fd, fsIocFsGetXattr, unsafe.Pointer(&attr)); err != nil {
		return fmt.Errorf("project quota: %w", err)
	}
	attr.projid = project
	attr.xflags |= fsXflagProjInherit
	if err := ioctl(fd, fsIocFsSetXattr, unsafe.Pointer(&attr)); err != nil {
		return fmt.Errorf("project quota: %w", err)
	}
	return setQuota(path, project, size)
}

// setQuota sets the limit of a project; 0 lifts it.
func setQuota(path string, project uint32, size int64) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	q := dqblk{bhardlimit: uint64((size + quotaBlock - 1) / quotaBlock), valid: qifLimits}
	if size > 0 {
		q.ihardlimit = uint64(max(size/4096, 1024))
	}
	_, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), qSetQuota<<8|prjQuota, uintptr(project), uintptr(unsafe.Pointer(&q)), 0, 0)
	if e != 0 {
		return fmt.Errorf("project quota: %w", e)
	}
	return nil
}

func ioctl(fd int, req uintptr, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}

// probeQuota tries a limit for real: accounting without enforcement looks the
// same until something is written.
func probeQuota(dir string) error {
	const project, size = 99999, 64 << 10 // below every box's id
	tmp, err := os.MkdirTemp(dir, "quota-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := limitTree(tmp, project, size); err != nil {
		return err
	}
	defer setQuota(tmp, project, 0)
	written := make(chan error, 1)
	thread.Go(func() { // without the capability that is above quotas
		if err := thread.Drop(unix.CAP_SYS_RESOURCE); err != nil {
			written <- err
			return
		}
		written <- os.WriteFile(filepath.Join(tmp, "f"), make([]byte, 4*size), 0o600)
	})
	err = <-written
	if !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		return errors.New("project quota: it is not enforced (mount the file system with prjquota)")
	}
	return nil
}
