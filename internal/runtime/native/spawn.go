package native

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/runtime/native/cgroup"
	"github.com/dsec-platform/dsec/internal/runtime/native/spawner"
	"github.com/dsec-platform/dsec/internal/runtime/native/thread"
)

// spawnTimeout bounds one fork. A spawner that does not answer within it is
// killed and replaced; its boxes live on.
const spawnTimeout = 20 * time.Second

// errSpawner is a failure of the spawner itself, not of what it was asked for:
// worth another attempt once everything of the first was removed.
var errSpawner = errors.New("the spawner failed")

// spawnClient is the daemon's end of the spawner; it starts one when there is none.
type spawnClient struct {
	run      *os.File // directory of the socket
	exe      string
	groups   *cgroup.Node
	slots    chan *net.UnixConn // idle connections; nil: to be made
	mu       sync.Mutex         // one start at a time
	patience time.Duration
}

const spawnerSocket = "spawner.sock"

func newSpawnClient(run *os.File, exe string, groups *cgroup.Node, parallel int) *spawnClient {
	c := &spawnClient{run: run, exe: exe, groups: groups, slots: make(chan *net.UnixConn, parallel), patience: spawnTimeout}
	for range parallel {
		c.slots <- nil
	}
	return c
}

// spawn asks for one guest. The error wraps errSpawner when nobody knows
// whether there is one now.
func (c *spawnClient) spawn(ctx context.Context, req *spawner.Request) (pid, pidfd int, err error) {
	var conn *net.UnixConn
	select {
	case conn = <-c.slots:
	case <-ctx.Done():
		return 0, -1, context.Cause(ctx)
	}
	defer func() { c.slots <- conn }()
	if conn == nil {
		if conn, err = c.connect(); err != nil {
			return 0, -1, fmt.Errorf("%w: %w", errSpawner, err)
		}
	}
	reply, err := c.call(conn, req)
	if errors.Is(err, syscall.EPIPE) { // its spawner was dead before: nobody has the request
		conn.Close()
		if conn, err = c.connect(); err != nil {
			return 0, -1, fmt.Errorf("%w: %w", errSpawner, err)
		}
		reply, err = c.call(conn, req)
	}
	if err != nil {
		conn.Close()
		conn = nil
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.killHung()
		}
		return 0, -1, fmt.Errorf("%w: %w", errSpawner, err)
	}
	if reply.Errno != 0 {
		return 0, -1, fmt.Errorf("%s: %w", reply.Step, reply.Errno)
	}
	return reply.Pid, reply.PidFD, nil
}

func (c *spawnClient) call(conn *net.UnixConn, req *spawner.Request) (*spawner.Reply, error) {
	var rights []byte
	if req.Kind == spawner.KindSpawn {
		rights = unix.UnixRights(req.FDs()...)
	}
	if err := conn.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return nil, err
	}
	if _, _, err := conn.WriteMsgUnix(guestproto.Marshal(nil, req), rights, nil); err != nil {
		return nil, err
	}
	buf, oob := make([]byte, 512), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	fds, err := spawner.ParseRights(oob[:oobn])
	reply := &spawner.Reply{PidFD: -1}
	if err == nil {
		err = guestproto.Unmarshal(buf[:n], reply)
	}
	if err == nil && reply.Errno == 0 && req.Kind == spawner.KindSpawn {
		if len(fds) != 1 || reply.Pid <= 0 {
			err = errors.New("the reply has no process")
		} else {
			reply.PidFD = fds[0]
			return reply, nil
		}
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return reply, err
}

// killHung ends a spawner that does not answer. The peer of the socket is no
// help to find it: that is who listened first, this process.
func (c *spawnClient) killHung() {
	for _, pid := range c.groups.Spawners() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	// While it dies its socket still takes connections.
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	defer cancel()
	_ = c.groups.AwaitSpawners(ctx) // if it cannot even die, the next attempt says so
}

func (c *spawnClient) path() string {
	return "/proc/self/fd/" + strconv.Itoa(int(c.run.Fd())) + "/" + spawnerSocket
}

func (c *spawnClient) dial() (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: c.path(), Net: "unixpacket"})
}

func (c *spawnClient) connect() (*net.UnixConn, error) {
	if conn, err := c.dial(); err == nil {
		return conn, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn, err := c.dial(); err == nil { // somebody else started one
		return conn, nil
	}
	if err := c.start(); err != nil {
		return nil, err
	}
	return c.dial()
}

// start starts a spawner. It is a session of its own and survives this process.
// Its socket is bound here, so that it can be dialled at once.
func (c *spawnClient) start() error {
	if err := os.Remove(c.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fd, err := listenUnix(c.path(), unix.SOCK_SEQPACKET)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	dir, join, err := c.groups.Parking()
	defer closeFDs(join)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	done := make(chan error, 1)
	thread.Go(func() { done <- c.exec(fd, dir, join) })
	return <-done
}

// exec forks from a thread that sits in the spawner's cgroups already and ends
// there: no part of the daemon stays in them.
func (c *spawnClient) exec(listen, cgroupDir int, join []int) error {
	for _, fd := range join {
		if _, err := unix.Write(fd, []byte("0")); err != nil {
			return os.NewSyscallError("join the spawner's cgroup", err)
		}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	pid, err := syscall.ForkExec(c.exe, []string{"dsec-spawner"}, &syscall.ProcAttr{
		Dir: "/", Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(listen)},
		Sys: &syscall.SysProcAttr{Setsid: true, UseCgroupFD: true, CgroupFD: cgroupDir},
	})
	if err != nil {
		return os.NewSyscallError("start the spawner", err)
	}
	p, err := os.FindProcess(pid)
	if err == nil {
		go p.Wait() // no zombie, should it end before this process does
	}
	return err
}

// quit ends the spawner if no box lives, and says whether there is none now.
func (c *spawnClient) quit() bool {
	conn, err := c.dial()
	if err != nil {
		return true
	}
	defer conn.Close()
	reply, err := c.call(conn, &spawner.Request{Kind: spawner.KindQuit})
	if err != nil || reply.Errno != 0 {
		return false
	}
	_ = os.Remove(c.path())
	return true
}

func (c *spawnClient) close() {
	for range cap(c.slots) {
		if conn := <-c.slots; conn != nil {
			conn.Close()
		}
	}
}

func listenUnix(path string, kind int) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "bind", Path: path, Err: err}
	}
	if err := unix.Listen(fd, 128); err != nil {
		unix.Close(fd)
		return -1, &os.PathError{Op: "listen", Path: path, Err: err}
	}
	return fd, nil
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
