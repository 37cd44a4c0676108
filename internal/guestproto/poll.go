package guestproto

import (
	"syscall"
	"unsafe"
)

const (
	pollIn  = 1
	pollOut = 4
)

// waitFD blocks until fd is ready. The setup functions take blocking and
// non-blocking sockets alike; package net is too heavy for a guest that has
// nothing to start but this.
func waitFD(fd int, events int16) error {
	p := struct {
		fd              int32
		events, revents int16
	}{fd: int32(fd), events: events}
	for {
		_, _, e := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, 0, 0, 0, 0)
		switch e {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return e
		}
	}
}
