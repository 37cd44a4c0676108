package rootfs

import (
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime"
)

const bindAttrs = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// hostBinds shows the host's own directories. They are not id-mapped: what
// belongs to the host's root belongs to nobody in the box.
func (b *Builder) hostBinds(s *Spec, t *Tree) error {
	binds := slices.Clone(s.Root.HostBinds)
	slices.SortStableFunc(binds, func(x, y runtime.HostBind) int { return len(x.Target) - len(y.Target) })
	for _, bind := range binds {
		fd, err := clone(unix.AT_FDCWD, bind.Source, bindAttrs, -1)
		if err != nil {
			return err
		}
		t.Add(guestproto.FDMount, bind.Target, fd)
		for _, masked := range bind.Masked {
			if err := b.mask(s, t, fd, bind.Target, masked); err != nil {
				return err
			}
		}
	}
	return nil
}

// mask covers one path of a bind. A path that this host has not needs none.
func (b *Builder) mask(s *Spec, t *Tree, bind int, target, masked string) error {
	at, err := unix.Openat2(bind, strings.TrimLeft(masked, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil
	} else if err != nil {
		return pathErr("mask", masked, err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return pathErr("mask", masked, err)
	}
	cover := "null"
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		cover = "mqueue" // empty
	case unix.S_IFLNK:
		return nil // leads to a path of the box
	}
	fd, err := b.shared(cover, s)
	if err != nil {
		return err
	}
	t.Add(guestproto.FDMount, path.Join(target, masked), fd)
	return nil
}

// dataMount clones a source for a data mount. The path was checked against the
// operator's list as a string, so no element of it may be a symlink.
func dataMount(m runtime.DataMount) (int, error) {
	refuse := func(why string) error {
		return errdefs.Userf(errdefs.InvalidArgument, "mount "+m.Source, "name a directory or file by its real path", "%s", why)
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, m.Source, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.ELOOP):
		return -1, refuse("the source has a symlink in its path")
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return -1, refuse("the source does not exist")
	case err != nil:
		return -1, pathErr("open", m.Source, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, pathErr("stat", m.Source, err)
	}
	if k := st.Mode & unix.S_IFMT; k != unix.S_IFDIR && k != unix.S_IFREG {
		return -1, refuse("the source is neither a directory nor a regular file")
	}
	return clone(fd, "", bindAttrs, -1)
}
