package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// Freeze stops the agent's processes and returns when they all stand. After an
// error they go on: a process may take long in the kernel before it stands.
func (n *Node) Freeze(ctx context.Context, id string) error {
	err := n.freeze(ctx, id, "1")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(err, writeAt(n.unified, id+"/agent/cgroup.freeze", "0"))
	}
	return err
}

// Thaw lets them go on.
func (n *Node) Thaw(ctx context.Context, id string) error { return n.freeze(ctx, id, "0") }

func (n *Node) freeze(ctx context.Context, id, value string) error {
	if err := writeAt(n.unified, id+"/agent/cgroup.freeze", value); err != nil {
		return err
	}
	return n.await(ctx, id+"/agent/cgroup.events", "frozen "+value)
}

// KillAgent kills every process of the agent. The groups live on, so it is not
// done by cgroup.kill: the kernel would kill whatever is cloned into them later.
// Frozen processes cannot fork away from the list; what the guest clones into the
// groups meanwhile stands there, and is on the next list.
func (n *Node) KillAgent(ctx context.Context, id string) error {
	agent := id + "/agent"
	was, err := readAt(n.unified, agent+"/cgroup.freeze")
	if err != nil {
		return err
	}
	err = n.Freeze(ctx, id)
	if err == nil {
		err = n.killFrozen(ctx, id, agent)
	}
	if strings.TrimSpace(string(was)) == "1" {
		return err
	}
	if err != nil { // what was started must not leave the agent frozen
		return errors.Join(err, writeAt(n.unified, agent+"/cgroup.freeze", "0"))
	}
	return n.Thaw(ctx, id)
}

func (n *Node) killFrozen(ctx context.Context, id, agent string) error {
	for {
		pids, err := n.pidsBelow(n.unified, agent)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return wrap("kill "+itoa(int64(pid))+" of", id, err)
			}
		}
		step, cancel := context.WithTimeout(ctx, relist)
		err = n.await(step, agent+"/cgroup.events", "populated 0")
		cancel()
		if err != nil && (ctx.Err() != nil || step.Err() == nil) {
			return err
		}
	}
}

// relist is how long the killed may take to die before it is looked for others.
const relist = 20 * time.Millisecond

// pidsBelow gives the processes of a directory and of those below it.
func (n *Node) pidsBelow(dir int, rel string) ([]int, error) {
	b, err := readAt(dir, rel+"/cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for f := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	fd, err := openDir(dir, rel)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	names, err := subdirs(fd)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		more, err := n.pidsBelow(fd, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return nil, err
		}
		pids = append(pids, more...)
	}
	return pids, nil
}

// Kill kills every process of the box, PID 1 included. No group, no error.
func (n *Node) Kill(id string) error {
	err := writeAt(n.unified, id+"/cgroup.kill", "1")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// AwaitEmpty returns when no process of the box lives. No group, no process.
func (n *Node) AwaitEmpty(ctx context.Context, id string) error {
	err := n.await(ctx, id+"/cgroup.events", "populated 0")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// Pids gives the processes of the box.
func (n *Node) Pids(id string) []int {
	pids, _ := n.pidsBelow(n.unified, id) // no group, no process
	return pids
}

// await blocks until the events file has the line; the kernel tells of each change.
func (n *Node) await(ctx context.Context, rel, line string) error {
	fd, err := unix.Openat(n.unified, rel, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wrap("open", rel, err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 256)
	for {
		k, err := unix.Pread(fd, buf, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return wrap("read", rel, err)
		}
		if strings.Contains("\n"+string(buf[:max(k, 0)]), "\n"+line+"\n") {
			return nil
		}
		wait := 50 * time.Millisecond // bounds how late the end of ctx is seen
		if d, ok := ctx.Deadline(); ok {
			wait = min(wait, max(time.Until(d), time.Millisecond))
		}
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
		if _, err := unix.Poll(p, int(wait.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
			return wrap("poll", rel, err)
		}
		if ctx.Err() != nil {
			return wrap("wait for "+line+" in", rel, context.Cause(ctx))
		}
	}
}

func (n *Node) readCPU(id string, u *runtime.Usage) error {
	b, err := readAt(n.unified, id+"/agent/cpu.stat")
	if err != nil {
		return err
	}
	u.CPU = time.Duration(keyed(b, "usage_usec")) * time.Microsecond
	return nil
}

// Remove removes the groups of a box that has no process left. It is
// idempotent; EBUSY says that something lives.
func (n *Node) Remove(id string) error {
	return errors.Join(n.layout.remove(id), n.removeTree(n.unified, id, 0))
}

// removeTree removes a cgroup2 directory and what the guest made in it. The
// common case (one leaf, which the guest makes ahead) reads no directory.
func (n *Node) removeTree(dir int, rel string, depth int) error {
	if depth == 0 {
		_ = unix.Unlinkat(dir, rel+"/agent/op-1", unix.AT_REMOVEDIR)
		_ = unix.Unlinkat(dir, rel+"/agent", unix.AT_REMOVEDIR)
	}
	err := rmdir(dir, rel)
	if err == nil || depth > 64 || !errors.Is(err, unix.EBUSY) {
		return err
	}
	fd, err := openDir(dir, rel)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	names, err := subdirs(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := n.removeTree(fd, name, depth+1); err != nil {
			return err
		}
	}
	return rmdir(dir, rel)
}

// mountPoint reports where a v1 controller is mounted, below the usual place.
func mountPoint(base, controller string) (string, bool) {
	path := base + "/" + controller
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Type != unix.CGROUP_SUPER_MAGIC {
		return "", false
	}
	_, err := os.Stat(path + "/tasks")
	return path, err == nil
}
