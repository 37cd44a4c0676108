package spawner

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawn forks one guest and answers as soon as its user namespace is there:
// the daemon builds the box's mounts while the child goes on to execute. A guest
// that cannot be executed ends, which its pidfd tells.
//
// last is the thread's child before, whose memory must not go while it is needed.
func spawn(r *Request, last *child) (*child, Reply) {
	if last != nil {
		last.wait()
	}
	fail := func(step string, err error) (*child, Reply) {
		return nil, Reply{Errno: errnoOf(err), Step: step, PidFD: -1}
	}
	var gate [2]int
	if err := unix.Pipe2(gate[:], unix.O_CLOEXEC); err != nil {
		return fail("make a pipe", err)
	}
	defer unix.Close(gate[0])
	defer unix.Close(gate[1])
	c := &child{pidfd: -1}
	c.compile(r, gate)
	pid, errno := c.start(r.Base)
	if errno != 0 {
		return fail("clone the guest", errno)
	}
	err := writeMaps(pid, r)
	if err == nil {
		_, err = unix.Write(gate[1], []byte{1})
	}
	if err != nil {
		_ = unix.PidfdSendSignal(int(c.pidfd), unix.SIGKILL, nil, 0)
		unix.Close(int(c.pidfd))
		_, reply := fail("map the ids of the guest", err)
		return c, reply
	}
	return c, Reply{Pid: pid, PidFD: int(c.pidfd)}
}

// writeMaps gives the child's user namespace the box's ids. setgroups stays
// allowed: apt and su in the box need it.
func writeMaps(pid int, r *Request) error {
	line := strconv.AppendUint(append(strconv.AppendUint([]byte("0 "), uint64(r.Base), 10), ' '), uint64(r.Count), 10)
	dir := "/proc/" + strconv.Itoa(pid)
	for _, name := range []string{"/uid_map", "/gid_map"} {
		fd, err := unix.Open(dir+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, line)
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

func errnoOf(err error) syscall.Errno {
	if e, ok := err.(syscall.Errno); ok && e != 0 {
		return e
	}
	return syscall.EIO
}
