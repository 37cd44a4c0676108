package api

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID is the user that connected, as the kernel says; -1 when it does not say.
func peerUID(c *net.UnixConn) int {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1
	}
	uid := -1
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && cred.Pid != 0 {
			uid = int(cred.Uid)
		}
	})
	if err != nil {
		return -1
	}
	return uid
}
