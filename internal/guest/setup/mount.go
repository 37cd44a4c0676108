package setup

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// below makes an absolute box path relative to the working directory, which is
// the root of the box at every step.
func below(path string) string {
	if p := strings.TrimLeft(path, "/"); p != "" {
		return p
	}
	return "."
}

// attach moves a detached mount to its path. RESOLVE_IN_ROOT keeps symlinks of
// the template inside it while the host's root is still around.
func attach(m *mount) error {
	at, err := openPath(m.path)
	if err == unix.ENOENT && makePoint(m) == nil { // in a writable root
		at, err = openPath(m.path)
	}
	if err != nil {
		return stepError{"mount point", m.path, err}
	}
	defer unix.Close(at)
	err = unix.MoveMount(m.fd, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	if err != nil {
		return stepError{"mount", m.path, err}
	}
	unix.Close(m.fd)
	m.fd = -1
	return nil
}

// makePoint makes the mount point of m: a directory, or an empty file.
func makePoint(m *mount) error {
	var st unix.Stat_t
	if err := unix.Fstat(m.fd, &st); err != nil {
		return err
	}
	path := below(m.path)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return mkdirAll(path)
	}
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		if err := mkdirAll(path[:i]); err != nil {
			return err
		}
	}
	return unix.Mknod(path, unix.S_IFREG|0o644, 0)
}

// topMounts gives the paths of mounts that are not below another one.
func topMounts(mounts []mount) (paths []string) {
next:
	for _, m := range mounts {
		for _, p := range paths {
			if strings.HasPrefix(m.path, p+"/") {
				continue next
			}
		}
		paths = append(paths, m.path)
	}
	return paths
}

// reroot replaces the root of a box in which nothing runs: a claim needs a
// mount point that the read-only root does not have. What is mounted moves over.
func reroot(root int, mounts []string) error {
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return stepError{"attach root", "", err}
	}
	if err := unix.Fchdir(root); err != nil {
		return stepError{"enter root", "", err}
	}
	for _, path := range mounts {
		if err := unix.MoveMount(unix.AT_FDCWD, path, unix.AT_FDCWD, below(path), 0); err != nil {
			return stepError{"move mount", path, err}
		}
	}
	return enterRoot()
}

// enterRoot makes the working directory, a mount over the old root, the root.
func enterRoot() error {
	if err := unix.PivotRoot(".", "."); err != nil {
		return stepError{"pivot", "", err}
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return stepError{"leave the old root", "", err}
	}
	if err := unix.Chdir("/"); err != nil {
		return stepError{"enter root", "", err}
	}
	return nil
}

func openPath(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, below(path), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// newFS mounts a fresh file system at path, relative to the working directory.
func newFS(fs, path string, attrs int, params ...string) error {
	fail := func(err error) error { return stepError{"mount " + fs + " on", "/" + path, err} }
	ctx, err := unix.Fsopen(fs, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(ctx)
	for i := 0; i < len(params); i += 2 {
		if params[i+1] == "" {
			err = unix.FsconfigSetFlag(ctx, params[i])
		} else {
			err = unix.FsconfigSetString(ctx, params[i], params[i+1])
		}
		if err != nil {
			return fail(err)
		}
	}
	if err := unix.FsconfigCreate(ctx); err != nil {
		return fail(err)
	}
	fd, err := unix.Fsmount(ctx, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(fd)
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fail(err)
	}
	return nil
}

// mountTemporary mounts /tmp and /dev/shm, two directories of one tmpfs: a superblock costs
// every memory cgroup of the machine some bytes (its shrinker), which is much with thousands of boxes.
// The tmpfs itself stays below /dev/shm.
func mountTemporary(size int64) error {
	params := []string{"mode", "755"}
	if size > 0 {
		params = append(params, "size", strconv.FormatInt(size, 10), "nr_inodes", inodes(size))
	}
	const all = "dev/shm"
	if err := newFS("tmpfs", all, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, params...); err != nil {
		return err
	}
	for _, m := range []struct{ name, path string }{{"tmp", "tmp"}, {"shm", all}} {
		dir := all + "/" + m.name
		if err := unix.Mkdir(dir, 0o1777); err != nil {
			return stepError{"make", "/" + m.path, err}
		}
		if err := unix.Mount(dir, m.path, "", unix.MS_BIND, ""); err != nil {
			return stepError{"mount", "/" + m.path, err}
		}
	}
	return nil
}

// inodes of a tmpfs grow with its size: each costs about 1 KiB of kernel
// memory that the size does not count.
func inodes(size int64) string { return strconv.FormatInt(max(size/4096, 1024), 10) }

func resizeTmpfs(path string, size int64) error {
	fail := func(err error) error { return stepError{"resize", path, err} }
	ctx, err := unix.Fspick(unix.AT_FDCWD, path, unix.FSPICK_CLOEXEC|unix.FSPICK_NO_AUTOMOUNT)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(ctx)
	if err := unix.FsconfigSetString(ctx, "size", strconv.FormatInt(size, 10)); err != nil {
		return fail(err)
	}
	if err := unix.FsconfigSetString(ctx, "nr_inodes", inodes(size)); err != nil {
		return fail(err)
	}
	if err := unix.FsconfigReconfigure(ctx); err != nil {
		return fail(err)
	}
	return nil
}

// maskedProc are entries of /proc that tell about the host. Nearly all are
// closed to a box's root anyway, who is nobody on the host; masking them keeps
// that true should a kernel be more liberal.
var (
	maskedFiles = []string{"kcore", "kallsyms", "keys", "kmsg", "timer_list", "sysrq-trigger"}
	maskedDirs  = []string{"acpi", "scsi", "pressure"} // anybody may put triggers into the last, and the kernel keeps them for all
)

func maskProc() error {
	for _, name := range maskedFiles {
		if err := cover("proc/"+name, "dev/null"); err != nil {
			return err
		}
	}
	for _, name := range maskedDirs {
		if err := cover("proc/"+name, "dev/mqueue"); err != nil { // empty and read-only
			return err
		}
	}
	return nil
}

// cover binds from over path; a path that this kernel has not is fine.
func cover(path, from string) error {
	if err := unix.Mount(from, path, "", unix.MS_BIND, ""); err != nil && err != unix.ENOENT {
		return stepError{"mask", "/" + path, err}
	}
	return nil
}

func mountProc() error {
	return newFS("proc", "proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

// maxTerminals of a box: the kernel has some 3,000 for all boxes of the machine together.
const maxTerminals = "128"

// mountTerminals completes the shared /dev, whose superblock is read-only, with the box's own terminals.
func mountTerminals() error {
	return newFS("devpts", "dev/pts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
		"newinstance", "", "ptmxmode", "0666", "mode", "0620", "gid", "5", "max", maxTerminals)
}
