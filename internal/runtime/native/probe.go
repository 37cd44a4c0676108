package native

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/native/rootfs"
	"github.com/dsec-platform/dsec/internal/runtime/native/store"
)

func unavailable(object, remedy string, err error) error {
	return &errdefs.Error{Class: errdefs.Infrastructure, Reason: errdefs.Unavailable, Scope: errdefs.ScopeNode,
		Object: object, Message: "cannot make boxes here: " + err.Error(), Remedy: remedy, Cause: err}
}

// probeTrees finds how trees can be built, with a throw-away user namespace.
func (r *Runtime) probeTrees(exe string) error {
	base := slotBase(0)
	userns, err := scratchUserNS(exe, base)
	if err != nil {
		return fmt.Errorf("user namespaces: %w", err)
	}
	defer unix.Close(userns)
	r.trees, err = rootfs.New(rootfs.Options{
		Cache: filepath.Join(r.o.DataDir, "mountpoints"), Stage: filepath.Join(r.o.RunDir, "stage"), Threads: goruntime.NumCPU(),
	}, userns, base)
	return err
}

// scratchUserNS makes a user namespace that only its descriptor keeps. The
// process that it needs for that is stopped at its first instruction and killed.
func scratchUserNS(exe string, base int) (int, error) {
	goruntime.LockOSThread() // a traced child belongs to its thread
	defer goruntime.UnlockOSThread()
	ids := []syscall.SysProcIDMap{{HostID: base, Size: idCount}}
	pid, err := syscall.ForkExec(exe, []string{filepath.Base(exe)}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, Ptrace: true, UidMappings: ids, GidMappings: ids,
	}})
	if err != nil {
		return -1, err
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	_ = unix.Kill(pid, unix.SIGKILL)
	for {
		var ws unix.WaitStatus
		if _, werr := unix.Wait4(pid, &ws, 0, nil); errors.Is(werr, unix.EINTR) || (werr == nil && ws.Stopped()) {
			continue
		}
		return fd, err
	}
}

// describe says what was found.
func (r *Runtime) describe() runtime.Probe {
	p := runtime.Probe{OK: true, Features: map[string]string{
		"cgroup": r.groups.Kind(),
		"mounts": r.trees.Rung(),

		runtime.FeatureFreeze:    "cgroup2",
		runtime.FeatureKillAgent: "cgroup2",
		runtime.FeatureMemory:    r.groups.Kind(),
		runtime.FeaturePids:      r.groups.Kind(),
		runtime.FeatureUsers:     "user namespace",
		runtime.FeatureRoot:      "overlay",
		runtime.FeatureDirs:      "store",
		runtime.FeatureUsage:     "cgroup",
	}}
	disk, why := r.stores.Disk()
	p.Features["store-disk"] = string(disk)
	if disk == store.Tmpfs {
		p.Missing = append(p.Missing, runtime.Missing{Feature: "store-disk", Reason: why,
			Remedy: "install e2fsprogs, or mount the data directory's file system with prjquota"})
	}
	if err := rootfs.ProbeEROFS(r.o.DataDir); err == nil && r.trees.Rung() == "detached" {
		p.Features["erofs-file"] = "yes"
	} else {
		p.Features["erofs-file"] = "no"
		p.Missing = append(p.Missing, runtime.Missing{Feature: "erofs-file", Reason: fmt.Sprint("the kernel cannot mount an EROFS image from a file: ", err),
			Remedy: "layers are kept as directories; Linux 6.12 or newer stores them as images"})
	}
	return p
}

// diskOf gives "major:minor" of the whole disk below path, for io limits;
// empty where there is none.
func diskOf(path string) string {
	var st unix.Stat_t
	for ; unix.Stat(path, &st) != nil; path = filepath.Dir(path) {
		if path == "/" || path == "." {
			return ""
		}
	}
	dev := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	sys := "/sys/dev/block/" + dev
	if _, err := os.Stat(sys); err != nil {
		return "" // tmpfs, overlay, a network file system
	}
	if _, err := os.Stat(sys + "/partition"); err != nil {
		return dev
	}
	real, err := filepath.EvalSymlinks(sys) // the partition lies below its disk
	if err != nil {
		return ""
	}
	disk, err := os.ReadFile(filepath.Join(filepath.Dir(real), "dev"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(disk))
}
