package spawner

import (
	"errors"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// spawn forks one guest. The calling thread must be locked; usable is false
// when it could not get back to its home cgroups and must end.
func (s *server) spawn(r *Request) (reply Reply, usable bool) {
	reply.PidFD = -1
	usable = true
	for _, fd := range r.Join {
		if err := joinSelf(fd); err != nil {
			reply.Errno, reply.Step = errnoOf(err), "join the memory cgroup"
			break
		}
	}
	if reply.Errno == 0 {
		s.fork(r, &reply)
	}
	for _, fd := range r.Home {
		if joinSelf(fd) != nil {
			usable = false
		}
	}
	return reply, usable
}

func (s *server) fork(r *Request, reply *Reply) {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(r.Base), Size: int(r.Count)}}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Files: []uintptr{uintptr(s.null), uintptr(s.null), uintptr(s.null), uintptr(r.Listen)},
		Sys: &syscall.SysProcAttr{
			Cloneflags:                 namespaces,
			UidMappings:                ids,
			GidMappings:                ids,
			GidMappingsEnableSetgroups: true, // apt and su in the box need setgroups
			Credential:                 &syscall.Credential{},
			Setsid:                     true,
			UseCgroupFD:                true,
			CgroupFD:                   r.Cgroup,
			PidFD:                      &pidfd,
		},
	}
	exe, err := clearOf(r.Exe, max(s.null, r.Listen)+1)
	if err != nil {
		reply.Errno, reply.Step = errnoOf(err), "duplicate a descriptor"
		return
	}
	if exe != r.Exe {
		defer unix.Close(exe)
	}
	// By descriptor: the binary lies in a directory that the box's ids cannot enter.
	pid, err := syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(exe), []string{"dsec-guest"}, attr)
	s.forked()
	if err != nil {
		if pidfd >= 0 {
			unix.Close(pidfd)
		}
		reply.Errno, reply.Step = errnoOf(err), "clone and execute the guest"
		return
	}
	reply.Pid, reply.PidFD = pid, pidfd
}

// clearOf gives fd under a number other than taken: package syscall moves its
// own pipe to the number after the highest one in ProcAttr.Files.
func clearOf(fd, taken int) (int, error) {
	if fd != taken {
		return fd, nil
	}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, taken+1)
}

// joinSelf moves the calling thread. Unlike a write to cgroup.procs this does
// not take the lock that waits for all of the machine.
func joinSelf(tasks int) error {
	for {
		_, err := unix.Write(tasks, []byte("0"))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func errnoOf(err error) syscall.Errno {
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	return syscall.EIO
}
