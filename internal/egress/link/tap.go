package link

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	tunPath      = "/dev/net/tun"
	tunFeatures  = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR
	tunOffloads  = 0x01 | 0x02 | 0x04 // TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6
	vnetHdrSize  = 10
	queueLen     = 10000 // the ring drops what is over: a thousand connects at once need more than the usual 1000
	sysctlPrefix = "/proc/sys/net/"
)

// sysctls are set in the box's namespace before the device is made: without a daemon connects fail at once, and
// the device has no IPv6 (loopback keeps its own).
var sysctls = []struct{ path, value string }{
	{"ipv4/conf/all/ignore_routes_with_linkdown", "1"},
	{"ipv6/conf/default/disable_ipv6", "1"},
}

// Tap is the descriptor of a device.
type Tap struct {
	file *os.File
	// Found tells that the device was there: an earlier daemon made it.
	Found bool
}

// Open makes the device in the namespace, or takes over the one that is there, and sets its
// addresses and routes. With resume it also ends the TCP connections of the namespace, whose other ends are gone.
func Open(ns *os.File, resume bool) (*Tap, error) {
	var tun, route, diag int = -1, -1, -1
	err := inside(ns, func() (err error) {
		if tun, err = unix.Open(tunPath, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open %s: %w", tunPath, err)
		}
		if route, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		if resume {
			if diag, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG); err != nil {
				return fmt.Errorf("netlink: %w", err)
			}
		}
		return setSysctls()
	})
	defer func() {
		for _, fd := range []int{route, diag} {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}()
	if err != nil {
		if tun >= 0 {
			_ = unix.Close(tun)
		}
		return nil, err
	}
	t := &Tap{Found: linkIndex(route, Device) > 0}
	if err := t.configure(tun, route); err != nil {
		_ = unix.Close(tun)
		return nil, err
	}
	if resume {
		destroySockets(diag)
	}
	t.file = os.NewFile(uintptr(tun), tunPath)
	return t, nil
}

func setSysctls() error {
	for _, s := range sysctls {
		err := os.WriteFile(sysctlPrefix+s.path, []byte(s.value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
			return err
		}
	}
	return nil
}

func (t *Tap) configure(tun, route int) error {
	ifr, err := unix.NewIfreq(Device)
	if err != nil {
		return err
	}
	ifr.SetUint16(tunFeatures)
	if err := ioctl(tun, unix.TUNSETIFF, uintptr(unsafe.Pointer(ifr))); err != nil {
		return fmt.Errorf("make the device %s: %w", Device, err)
	}
	if err := ioctl(tun, unix.TUNSETOFFLOAD, tunOffloads); err != nil {
		return fmt.Errorf("offloads of %s: %w", Device, err)
	}
	if err := ioctl(tun, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("keep %s: %w", Device, err)
	}
	return setUp(route)
}

// Close lets go of the device. It stays, without a carrier, unless remove is set.
func (t *Tap) Close(remove bool) error {
	if remove {
		if c, err := t.file.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { _ = ioctl(int(fd), unix.TUNSETPERSIST, 0) })
		}
	}
	return t.file.Close()
}

func ioctl(fd int, req uint, arg uintptr) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(req), arg); e != 0 {
		return e
	}
	return nil
}
