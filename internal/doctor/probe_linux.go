package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// probes try the kernel features that the native runtime is built on.
func probes(dataDir string) []Probe {
	p := &prober{dir: dataDir}
	return []Probe{
		{"probe-namespaces", Fail, "see the namespaces and security checks; in a container use --privileged", p.namespaces},
		{"probe-idmap", Fail, "use a kernel of 5.19 or newer, and ext4, xfs or btrfs for the data directory", p.idmap},
		{"probe-overlay", Fail, "use a kernel of 5.19 or newer; see the data-dir, selinux and container checks", p.overlay},
		{"probe-overlay-detached", Warn, "newer kernels (6.15) build a root without attaching its layers; older ones do it in a private namespace", p.overlayDetached},
		{"probe-erofs", Warn, "modprobe erofs on a kernel of 6.12 or newer; without it layers are kept as directories", p.erofs},
		{"probe-cgroup", Fail, "see the cgroups checks", p.cgroup},
		{"probe-seccomp", Fail, "use a kernel with CONFIG_SECCOMP_FILTER", p.seccomp},
		{"probe-pidfd", Fail, "use a kernel of 5.10 or newer", p.pidfd},
		{"probe-tun", Warn, "modprobe tun; in a container pass --device /dev/net/tun. Without it sessions with a network go by a proxy in their box, which programs find by http_proxy and its like", p.tun},
		{"probe-loop", Warn, "modprobe loop; without loop devices or project quota, size limits on disk fall back to tmpfs", p.loop},
		{"probe-init", Warn, "give the container an init that reaps (docker run --init, tini, or systemd), or start the daemon below one", p.reaper},
	}
}

// prober makes everything it needs below a directory of its own in the data
// directory's file system, and removes it.
type prober struct{ dir string }

// scratch gives a fresh directory in the data directory, or in the nearest existing parent.
func (p *prober) scratch() (string, func(), error) {
	dir := p.dir
	for {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	tmp, err := os.MkdirTemp(dir, ".dsec-doctor-")
	return tmp, func() { os.RemoveAll(tmp) }, err
}

const allNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// sleeper is a process that waits in its own namespaces until it is ended.
type sleeper struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func sleep(ctx context.Context, attr *syscall.SysProcAttr) (*sleeper, error) {
	cmd := exec.CommandContext(ctx, "cat")
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &sleeper{cmd, in}, nil
}

func (s *sleeper) end() error {
	return errors.Join(s.stdin.Close(), s.cmd.Wait())
}

func boxed() *syscall.SysProcAttr {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100000, Size: 65536}}
	return &syscall.SysProcAttr{Cloneflags: allNamespaces, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true}
}

func (p *prober) namespaces(ctx context.Context) (string, error) {
	s, err := sleep(ctx, boxed())
	if err != nil {
		return "", fmt.Errorf("a process cannot be made in new namespaces: %w", err)
	}
	if err := s.end(); err != nil {
		return "", fmt.Errorf("a process in new namespaces ended badly: %w", err)
	}
	return "user, mnt, pid, ipc, uts, net and cgroup namespaces can be made", nil
}

func (p *prober) idmap(ctx context.Context) (string, error) {
	dir, remove, err := p.scratch()
	if err != nil {
		return "", err
	}
	defer remove()
	s, err := sleep(ctx, boxed())
	if err != nil {
		return "", fmt.Errorf("no user namespace: %w", err)
	}
	defer s.end()
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", s.cmd.Process.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("the user namespace cannot be opened: %w", err)
	}
	defer unix.Close(ns)
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("open_tree: %w", err)
	}
	defer unix.Close(tree)
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns)}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, attr); err != nil {
		return "", fmt.Errorf("mount_setattr: %w", err)
	}
	return "mounts of the data directory's file system can be id-mapped", nil
}

func (p *prober) seccomp(context.Context) (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil {
		return "", fmt.Errorf("no seccomp filters: %w", err)
	}
	for _, a := range []string{"kill_process", "errno", "allow"} {
		if !hasWord(string(b), a) {
			return "", fmt.Errorf("seccomp lacks the action %s", a)
		}
	}
	return "filters with " + strings.TrimSpace(string(b)), nil
}

func (p *prober) pidfd(context.Context) (string, error) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return "", fmt.Errorf("pidfd_open: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, 0, nil, 0); err != nil {
		return "", fmt.Errorf("pidfd_send_signal: %w", err)
	}
	if err := unix.CloseRange(1<<30, 1<<30, 0); err != nil {
		return "", fmt.Errorf("close_range: %w", err)
	}
	return "pidfd_open, pidfd_send_signal and close_range work", nil
}

func (p *prober) loop(context.Context) (string, error) {
	fd, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("/dev/loop-control: %w", err)
	}
	defer unix.Close(fd)
	n, err := unix.IoctlRetInt(fd, unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return "", fmt.Errorf("no free loop device: %w", err)
	}
	return fmt.Sprintf("/dev/loop%d is free", n), nil
}
