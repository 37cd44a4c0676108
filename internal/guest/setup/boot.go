package setup

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// boot makes the box. The order matters: proc is mounted while the host's own
// (fully visible) one is still in this mount namespace, without which the
// kernel refuses it to a user namespace; everything else follows; the old root goes last.
func boot(msg *guestproto.Setup, d *descriptors) (*Settings, error) {
	unix.Umask(0)
	if d.root < 0 {
		return nil, stepError{"boot", "", guestproto.ErrBadMessage}
	}
	if err := unix.MoveMount(d.root, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, stepError{"attach root", "", err}
	}
	if err := unix.Fchdir(d.root); err != nil {
		return nil, stepError{"enter root", "", err}
	}
	if err := mountProc(); err != nil {
		return nil, err
	}
	for i := range d.mounts {
		if err := attach(&d.mounts[i]); err != nil {
			return nil, err
		}
	}
	if err := mountTerminals(); err != nil {
		return nil, err
	}
	if err := maskProc(); err != nil {
		return nil, err
	}
	if err := mountTemporary(msg.TmpSize); err != nil {
		return nil, err
	}
	if err := enterRoot(); err != nil {
		return nil, err
	}
	if err := loopbackUp(); err != nil {
		return nil, stepError{"loopback", "", err}
	}
	s := newSettings(msg)
	s.mounts = append(topMounts(d.mounts), "/proc", "/tmp")
	s.AgentTasks, s.AgentCgroup = d.tasks, d.cgroup
	s.AgentMemory, s.AgentPids = d.memory, d.pids
	d.tasks, d.cgroup, d.memory, d.pids = nil, -1, -1, -1
	return s, finish(s, msg, d)
}

// claim applies what differs from the pooled box.
func claim(old *Settings, msg *guestproto.Setup, d *descriptors) (*Settings, error) {
	if d.root >= 0 {
		if err := reroot(d.root, append(slices.Clone(old.mounts), old.WritableDirs...)); err != nil {
			return nil, err
		}
	}
	for i := range d.mounts {
		if err := attach(&d.mounts[i]); err != nil {
			return nil, err
		}
	}
	if msg.TmpSize > 0 {
		if err := resizeTmpfs("/tmp", msg.TmpSize); err != nil { // and with it /dev/shm
			return nil, err
		}
	}
	s := newSettings(msg)
	s.AgentTasks, s.AgentCgroup = old.AgentTasks, old.AgentCgroup
	s.AgentMemory, s.AgentPids = old.AgentMemory, old.AgentPids
	s.WritableDirs = slices.Clone(old.WritableDirs)
	s.mounts = old.mounts
	if old.User != msg.User {
		if err := reown(old, s); err != nil {
			return nil, err
		}
	}
	return s, finish(s, msg, d)
}

func finish(s *Settings, msg *guestproto.Setup, d *descriptors) error {
	uid, gid, found := lookupUser(s.User)
	if !found && !msg.Pooled { // the claim says whom a pooled box is for
		return noUser(s.User)
	}
	if msg.Hostname != "" {
		if err := unix.Sethostname([]byte(msg.Hostname)); err != nil {
			return stepError{"hostname", msg.Hostname, err}
		}
	}
	return addWritable(s, uid, gid, d.writable, msg.WritableDirs)
}
