package rootfs

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// attached builds trees on kernels whose overlay and whose clones want mounts
// that are attached somewhere (5.19 to 6.14). The one mounting thread has a
// mount namespace of its own with a tmpfs over the stage directory, which is
// also its working directory; what the box gets is cloned off there.
// Layers are directories; a tmpfs cannot be id-mapped before 6.3.
type attached struct {
	tmpfsIDs bool
	areas    map[int]string // descriptor → where its mount was attached; mounting thread only
}

func newAttached(o Options) (rung, func() error) {
	a := &attached{areas: map[int]string{}}
	return a, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil { // implies a file-system state of its own
			return pathErr("unshare", "mount namespace", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
			return pathErr("make slave", "/", err)
		}
		if err := unix.Mount("dsec-stage", o.Stage, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=1m,mode=0700"); err != nil {
			return pathErr("mount", o.Stage, err)
		}
		return pathErr("enter", o.Stage, unix.Chdir(o.Stage))
	}
}

func (*attached) name() string        { return "attached" }
func (a *attached) idmapsTmpfs() bool { return a.tmpfsIDs }

// clone clones a mount of this thread's namespace. A detached one is attached
// first and stays so; one of another namespace is found again by its path.
func (a *attached) clone(fd int, path string, attrs uint64, userns int) (int, error) {
	got, err := clone(fd, path, attrs, userns)
	if !errors.Is(err, unix.EINVAL) || fd == unix.AT_FDCWD {
		return got, err
	}
	link := "/proc/self/fd/" + strconv.Itoa(fd)
	if dir, mkErr := os.MkdirTemp(".", "area-"); mkErr == nil {
		if unix.MoveMount(fd, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH) == nil {
			a.areas[fd] = dir
			return clone(fd, path, attrs, userns)
		}
		os.Remove(dir)
	}
	name, linkErr := os.Readlink(link)
	if linkErr != nil || !strings.HasPrefix(name, "/") {
		return -1, err
	}
	if path != "" {
		name += "/" + path
	}
	return clone(unix.AT_FDCWD, name, attrs, userns)
}

// release detaches what clone attached.
func (a *attached) release(fd int) {
	if dir, ok := a.areas[fd]; ok {
		delete(a.areas, fd)
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		_ = os.Remove(dir)
	}
}

func (a *attached) dir(_ *Builder, s *Spec, d Dir) (int, error) {
	return a.clone(d.Area.FD(), d.Name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, mapFor(d.Area, s))
}

func mapFor(a Area, s *Spec) int {
	if a.IDs() {
		return s.UserNS
	}
	return -1
}

func (a *attached) root(_ *Builder, s *Spec) (_ int, err error) {
	var st stage
	defer func() { err = errors.Join(err, st.clear()) }()
	var names []string
	for i, l := range s.Root.Layers {
		if l.EROFS {
			return -1, pathErr("open layer", l.Path, errors.ErrUnsupported)
		}
		fd, err := clone(unix.AT_FDCWD, l.Path, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV, s.UserNS)
		if err != nil {
			return -1, err
		}
		if len(s.Root.Layers) == 1 && s.Upper == nil {
			return fd, nil
		}
		name := strconv.Itoa(i)
		if err := st.attach(fd, name); err != nil {
			return -1, err
		}
		names = append(names, name)
	}
	data := "lowerdir=" + strings.Join(names, ":") + ",index=off,metacopy=off,xino=off"
	if s.Upper == nil {
		data += ",redirect_dir=follow"
	} else {
		fd, err := a.clone(s.Upper.FD(), "", unix.MOUNT_ATTR_NODEV, mapFor(s.Upper, s))
		if err != nil {
			return -1, err
		}
		if err := st.attach(fd, "up"); err != nil {
			return -1, err
		}
		data += ",redirect_dir=on,volatile,upperdir=up/u,workdir=up/w"
	}
	if err := st.overlay(data); err != nil {
		return -1, err
	}
	tree, err := clone(unix.AT_FDCWD, "tree", unix.MOUNT_ATTR_NODEV, -1)
	if err == nil && s.Upper != nil {
		if err = writable(tree); err != nil {
			unix.Close(tree)
		}
	}
	return tree, err
}

// stage remembers what is attached in the stage directory.
type stage struct{ names []string }

// attach takes over fd.
func (st *stage) attach(fd int, name string) error {
	defer unix.Close(fd)
	if err := mkdir(name); err != nil {
		return err
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return pathErr("attach", name, err)
	}
	st.names = append(st.names, name)
	return nil
}

func (st *stage) overlay(data string) error {
	if err := mkdir("tree"); err != nil {
		return err
	}
	if err := unix.Mount("dsec", "tree", "overlay", unix.MS_NODEV, data); err != nil {
		return pathErr("mount overlay", data, err)
	}
	st.names = append(st.names, "tree")
	return nil
}

func mkdir(name string) error {
	if err := unix.Mkdir(name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return pathErr("mkdir", name, err)
	}
	return nil
}

func (st *stage) clear() error {
	var errs []error
	for i := len(st.names) - 1; i >= 0; i-- {
		errs = append(errs, pathErr("detach", st.names[i], unix.Unmount(st.names[i], unix.MNT_DETACH)))
	}
	return errors.Join(errs...)
}
