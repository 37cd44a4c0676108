package link

import (
	"context"
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Usable tells why no device can be made on this machine; nil: they can.
func Usable() error {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", tunPath, err)
	}
	return unix.Close(fd)
}

// Listen listens for TCP on a loopback address of the namespace ns, and brings its loopback up. While the listener is open nobody in the
// namespace can listen there too: ports are shared (SO_REUSEPORT) only among those that all ask for it, and this
// one does not. The listener keeps the namespace.
func Listen(ns *os.File, addr string) (net.Listener, error) {
	var ln net.Listener
	err := inside(ns, func() (err error) {
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bring loopback up: %w", err)
		}
		var c net.ListenConfig
		c.SetMultipathTCP(false) // plain sockets, which can be spliced
		ln, err = c.Listen(context.Background(), "tcp4", addr)
		return err
	})
	if err != nil && ln != nil { // the thread could not leave the namespace
		_ = ln.Close()
	}
	if err != nil {
		return nil, err
	}
	return ln, nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := ioctl(fd, unix.SIOCGIFFLAGS, uintptr(unsafe.Pointer(ifr))); err != nil {
		return err
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return ioctl(fd, unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(ifr)))
}
