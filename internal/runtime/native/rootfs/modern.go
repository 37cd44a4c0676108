package rootfs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// modern builds trees from detached mounts only: overlay takes its layers by
// descriptor, clones are made of detached mounts, tmpfs can be id-mapped.
type modern struct{}

func (modern) name() string      { return "detached" }
func (modern) idmapsTmpfs() bool { return true }

func (modern) clone(fd int, path string, attrs uint64, userns int) (int, error) {
	return clone(fd, path, attrs, userns)
}

func (modern) release(int) {}

func (modern) dir(_ *Builder, s *Spec, d Dir) (int, error) {
	return clone(d.Area.FD(), d.Name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, mapFor(d.Area, s))
}

func (modern) root(b *Builder, s *Spec) (_ int, err error) {
	lowers := make([]int, 0, len(s.Root.Layers))
	defer func() {
		for _, fd := range lowers {
			unix.Close(fd)
		}
	}()
	for _, l := range s.Root.Layers {
		fd, err := b.lower(l, s.UserNS)
		if err != nil {
			return -1, err
		}
		lowers = append(lowers, fd)
	}
	if len(lowers) == 1 && s.Upper == nil {
		fd := lowers[0]
		lowers = nil
		return fd, nil
	}
	params := make([]param, 0, len(lowers)+8)
	for _, fd := range lowers {
		params = append(params, param{"lowerdir+", "", fd})
	}
	if s.Upper == nil {
		params = append(params, str("redirect_dir", "follow"))
	} else {
		up, fds, err := b.upper(s)
		defer func() {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}()
		if err != nil {
			return -1, err
		}
		params = append(params, up...)
	}
	params = append(params, str("source", "dsec"), str("index", "off"), str("metacopy", "off"), str("xino", "off"))
	tree, err := newFS("overlay", unix.MOUNT_ATTR_NODEV, params...)
	if err != nil {
		return -1, err
	}
	if s.Upper != nil {
		if err := writable(tree); err != nil {
			unix.Close(tree)
			return -1, err
		}
	}
	return tree, nil
}

// lower clones a layer for the box.
func (b *Builder) lower(l runtime.Layer, userns int) (int, error) {
	fd, err := b.layers.get(l)
	if err != nil {
		return -1, err
	}
	return clone(fd, "", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV, userns)
}

// upper gives the options of a writable overlay. Upper and work directory must
// come from one clone: overlay wants them on the same mount.
func (b *Builder) upper(s *Spec) (params []param, fds []int, err error) {
	up, err := clone(s.Upper.FD(), "", unix.MOUNT_ATTR_NODEV, mapFor(s.Upper, s))
	if err != nil {
		return nil, nil, err
	}
	fds = append(fds, up)
	for _, d := range []struct{ key, name string }{{"upperdir", "u"}, {"workdir", "w"}} {
		fd, err := unix.Openat(up, d.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fds, pathErr("open", d.name, err)
		}
		fds = append(fds, fd)
		params = append(params, param{d.key, "", fd})
	}
	// volatile: without it the end of a box syncs the file system of the store.
	return append(params, flag("volatile"), str("redirect_dir", "on")), fds, nil
}

// writable refuses an overlay that the kernel silently mounted read-only, as it
// does when the work directory cannot be made ready.
func writable(tree int) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(tree, &st); err != nil {
		return err
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return errors.New("overlay: the kernel mounted the writable root read-only; see dmesg")
	}
	return nil
}
