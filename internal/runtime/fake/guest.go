package fake

import (
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guest"
	"github.com/dsec-platform/dsec/internal/guest/files"
	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// host runs a box's guest inside this process. Paths are the machine's own: an op that names
// none starts in the user's home, and DSEC_BOX names the box's directory.
type host struct {
	server *guest.Server
	wg     sync.WaitGroup

	mu    sync.Mutex
	dead  bool
	conns []net.Conn // the guest's ends
}

func startGuest(dir string, c *runtime.Claim) *host {
	settings := &setup.Settings{
		Env:  append([]string{"DSEC_BOX=" + dir}, c.Env...),
		User: strconv.Itoa(os.Geteuid()), NewPrivileges: true, AgentCgroup: -1,
	}
	h := &host{}
	h.server = guest.NewServer(guest.Options{
		Settings: func() *setup.Settings { return settings }, Files: serveFiles, Build: "fake",
	})
	return h
}

// dial connects to the guest.
func (h *host) dial() (net.Conn, error) {
	near, far, err := pair()
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		_ = far.Close() // as a listening socket does whose owner has died
		return near, nil
	}
	h.conns = append(h.conns, far)
	h.wg.Go(func() {
		_ = h.server.Serve(far) // its end is seen on the other side
		_ = far.Close()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.conns = slices.DeleteFunc(h.conns, func(c net.Conn) bool { return c == far })
	})
	return near, nil
}

// serveFiles is a file worker in this process.
func serveFiles(rw io.ReadWriteCloser) {
	w := files.New()
	defer w.Close()
	conn, err := mux.NewConn(rw, mux.Config{Accept: w.Serve, Hello: guestproto.Hello{Major: guest.Major}})
	if err == nil {
		_ = conn.Serve() // its end is seen on the other side
	}
}

// kill ends the guest and what it runs.
func (h *host) kill() {
	h.mu.Lock()
	h.dead = true
	for _, c := range h.conns {
		_ = c.Close()
	}
	h.mu.Unlock()
	h.server.Close()
	h.wg.Wait()
}

// pair gives the two ends of a stream.
func pair() (near, far net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "fake runtime", "socketpair: %w", err)
	}
	conns := [2]net.Conn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "guest")
		conns[i], err = net.FileConn(f)
		_ = f.Close()
		if err != nil {
			return nil, nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "fake runtime", "socketpair: %w", err)
		}
	}
	return conns[0], conns[1], nil
}
