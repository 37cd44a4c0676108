package guest

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// openTTY gives the op a terminal and returns the command's end of it. That end
// comes from the master itself, not from a name that the agent could have put there.
func openTTY(o *op, r *guestproto.ExecRequest, owner int) (slave int, err error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	f := os.NewFile(uintptr(master), "tty")
	if err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err == nil {
		slave, err = ptyPeer(master)
	}
	if err != nil {
		_ = f.Close()
		return -1, err
	}
	if owner > 0 {
		_ = unix.Fchown(slave, owner, -1)
	}
	_ = unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, size(r.Rows, r.Cols))
	// Two descriptors of the master: one to read, whose end closes it, one to write and resize.
	w, err := unix.FcntlInt(uintptr(master), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		_ = f.Close()
		_ = unix.Close(slave)
		return -1, err
	}
	o.pumps[0].file = f
	o.tty = os.NewFile(uintptr(w), "tty")
	o.stdin = newStdin(o.tty, true)
	return slave, nil
}

func ptyPeer(master int) (int, error) {
	fd, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

func size(rows, cols uint16) *unix.Winsize {
	if rows == 0 {
		rows = 24
	}
	if cols == 0 {
		cols = 80
	}
	return &unix.Winsize{Row: rows, Col: cols}
}

func setSize(f *os.File, rows, cols uint16) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var e error
	err = conn.Control(func(fd uintptr) { e = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size(rows, cols)) })
	if err != nil {
		return err
	}
	return e
}
