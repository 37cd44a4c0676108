package files

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// TestMain turns the test binary into a worker process when it is asked to.
func TestMain(m *testing.M) {
	if os.Getenv("DSEC_FILES_WORKER") != "" {
		limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			os.Exit(3)
		}
		if err := Run(os.NewFile(3, "worker")); !errors.Is(err, mux.ErrLost) {
			os.Exit(4)
		}
		os.Exit(0)
	}
	unix.Umask(0)
	goleak.VerifyTestMain(m)
}

// client talks to a worker in this process over a socket pair.
type client struct {
	t    *testing.T
	conn *mux.Conn
}

func start(t *testing.T) *client {
	t.Helper()
	a, b := socketPair(t)
	w := New()
	server, err := mux.NewConn(b, mux.Config{Accept: w.Serve})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := mux.NewConn(a, mux.Config{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 2)
	for _, c := range []*mux.Conn{server, conn} {
		go func() {
			if err := c.Serve(); err != mux.ErrLost {
				t.Log(err)
			}
			done <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		conn.Close()
		<-done
		<-done
		w.Close()
	})
	return &client{t, conn}
}

func socketPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return conns[0], conns[1]
}

// open sends a request; end: without data.
func (c *client) open(kind guestproto.Kind, req guestproto.FileRequest, end bool) *mux.Stream {
	c.t.Helper()
	s, err := c.conn.Open(kind, guestproto.Marshal(nil, &req), end)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { s.Close() })
	return s
}

// call is a request with one answer.
func (c *client) call(kind guestproto.Kind, req guestproto.FileRequest, answer guestproto.Message) error {
	c.t.Helper()
	return c.open(kind, req, true).RecvMessage(answer)
}

func (c *client) do(kind guestproto.Kind, req guestproto.FileRequest) error {
	c.t.Helper()
	return c.call(kind, req, &guestproto.Reply{})
}

func (c *client) write(req guestproto.FileRequest, data []byte) (*guestproto.FileInfo, error) {
	c.t.Helper()
	s := c.open(guestproto.KindFileWrite, req, false)
	if len(data) > 0 {
		if _, err := s.Write(data); err != nil {
			return nil, err
		}
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	info := &guestproto.FileInfo{}
	return info, s.RecvMessage(info)
}

func (c *client) read(req guestproto.FileRequest) (*guestproto.FileInfo, []byte, error) {
	c.t.Helper()
	s := c.open(guestproto.KindFileRead, req, true)
	info := &guestproto.FileInfo{}
	if err := s.RecvMessage(info); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(s)
	return info, data, err
}

// wantError checks class and reason.
func wantError(t *testing.T, err error, class, reason string) {
	t.Helper()
	e, ok := errors.AsType[*guestproto.WireError](err)
	if !ok || e.Class != class || e.Reason != reason {
		t.Errorf("got %v (%+v), want %s %s", err, e, class, reason)
	} else if e.Object == "" || e.Message == "" || e.Remedy == "" {
		t.Errorf("incomplete error: %+v", e)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// self is the user of this test, whom a worker without root can serve.
func self() string { return itoa(os.Geteuid()) }

// leftovers fails the test when a temporary file has stayed.
func leftovers(t *testing.T, dir string, want int) {
	t.Helper()
	list, err := os.ReadDir(dir)
	must(t, err)
	if len(list) != want {
		t.Errorf("%s has %d entries, want %d: %v", dir, len(list), want, list)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("taking on another user's identity needs root")
	}
}

// quickDir is in memory where it can be: for tests that make very many files.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dsec-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
