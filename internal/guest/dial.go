package guest

import (
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// dial connects to something in the box and carries its bytes.
func (s *Server) dial(st *mux.Stream, body []byte) error {
	var r guestproto.DialRequest
	if err := guestproto.Unmarshal(body, &r); err != nil {
		return badRequest(err)
	}
	f, err := connect(&r)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := st.SendMessage(&guestproto.Reply{}, false); err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() { // a peer that says nothing holds up neither side when the client is gone
		select {
		case <-st.Gone():
			_ = f.Close()
		case <-ended:
		}
	}()
	go func() { // ends with the stream or the connection
		_, err := io.Copy(f, st)
		if err != nil {
			_ = f.Close()
			return
		}
		shutdownWrite(f)
	}()
	buf := make([]byte, followChunk)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if _, err := st.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			break
		}
	}
	if err := st.CloseSend(); err != nil {
		return err
	}
	<-st.Finished()
	return nil
}

func shutdownWrite(f *os.File) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_WR) })
	}
}

func connect(r *guestproto.DialRequest) (*os.File, error) {
	object := "address " + clipped(r.Addr)
	var list []unix.Sockaddr
	domain := unix.AF_INET
	switch r.Network {
	case "unix":
		if r.Addr == "" || len(r.Addr) > 107 {
			return nil, userError("invalid_argument", object, "not a socket path of 1 to 107 bytes", "give a shorter path")
		}
		list, domain = []unix.Sockaddr{&unix.SockaddrUnix{Name: r.Addr}}, unix.AF_UNIX
	case "tcp", "tcp4", "tcp6":
		var ok bool
		if list, ok = tcpAddrs(r.Network, r.Addr); !ok {
			return nil, userError("invalid_argument", object, "not an IP address (or localhost) and a port", "give for example 127.0.0.1:8080")
		}
	default:
		return nil, userError("invalid_argument", "network "+clipped(r.Network), "unknown", "use tcp, tcp4, tcp6 or unix")
	}
	var err error
	for _, sa := range list {
		if _, six := sa.(*unix.SockaddrInet6); six {
			domain = unix.AF_INET6
		}
		var f *os.File
		if f, err = connectOne(domain, sa); err == nil {
			return f, nil
		}
	}
	return nil, userError("unavailable", object, "cannot connect in the box: "+err.Error(), "check that the program listens there")
}

func tcpAddrs(network, addr string) ([]unix.Sockaddr, bool) {
	if rest, ok := cutPrefix(addr, "localhost:"); ok {
		port, ok := parseIDString(rest)
		if !ok || port == 0 || port > 65535 {
			return nil, false
		}
		v4 := &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}
		v6 := &unix.SockaddrInet6{Port: int(port), Addr: netip.IPv6Loopback().As16()}
		switch network {
		case "tcp4":
			return []unix.Sockaddr{v4}, true
		case "tcp6":
			return []unix.Sockaddr{v6}, true
		}
		return []unix.Sockaddr{v4, v6}, true
	}
	ap, err := netip.ParseAddrPort(addr)
	if err != nil || ap.Port() == 0 || ap.Addr().Zone() != "" {
		return nil, false
	}
	a := ap.Addr().Unmap()
	if a.Is4() && network != "tcp6" {
		return []unix.Sockaddr{&unix.SockaddrInet4{Port: int(ap.Port()), Addr: a.As4()}}, true
	}
	if a.Is6() && network != "tcp4" {
		return []unix.Sockaddr{&unix.SockaddrInet6{Port: int(ap.Port()), Addr: a.As16()}}, true
	}
	return nil, false
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) >= len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):], true
	}
	return s, false
}

// connectOne waits for the connection without holding a thread.
func connectOne(domain int, sa unix.Sockaddr) (*os.File, error) {
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, sa)
	f := os.NewFile(uintptr(fd), "socket")
	if err == unix.EINPROGRESS {
		err = awaitConnected(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// connectPatience bounds a connection attempt that nobody answers.
const connectPatience = 30 * time.Second

func awaitConnected(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if err := f.SetWriteDeadline(time.Now().Add(connectPatience)); err != nil {
		return err
	}
	var e error
	err = conn.Write(func(fd uintptr) bool {
		// The event may have come before this wait: ask, do not assume.
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(p, 0); err != nil || n == 0 {
			return false
		}
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil {
			e = err
		} else if n != 0 {
			e = unix.Errno(n)
		}
		return true
	})
	if err != nil {
		return err
	}
	if e != nil {
		return e
	}
	return f.SetWriteDeadline(time.Time{})
}
