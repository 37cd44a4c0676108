package spawner

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// Linger is how long a spawner without boxes and without a daemon stays.
const Linger = 10 * time.Second

type server struct {
	mu    sync.Mutex
	conns int
	idle  *time.Timer
	forks int // finished ones, well or not
	born  *sync.Cond
}

// Serve runs the spawner on the listening socket until there is nothing left to do, when
// it ends the process. It returns only with an error.
func Serve(listen int) error {
	if err := unix.CloseRange(uint(listen)+1, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	unix.CloseOnExec(listen)
	// Threads here sit in blocking calls, not on processors.
	runtime.GOMAXPROCS(max(16, runtime.NumCPU()))
	s := &server{}
	s.born = sync.NewCond(&s.mu)
	s.idle = time.AfterFunc(Linger, s.exitIfIdle)
	go s.reap()
	for {
		conn, _, err := unix.Accept4(listen, unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
			time.Sleep(time.Millisecond) // the condition passes as requests end
		case err != nil:
			return err
		default:
			s.count(1)
			go s.serve(conn)
		}
	}
}

// count changes the number of connections, which keep the spawner alive.
func (s *server) count(conns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns += conns
	s.idle.Reset(Linger)
}

func (s *server) exitIfIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == 0 && childless() {
		os.Exit(0)
	}
}

// childless reaps who is dead and says whether nobody is left. The kernel
// cannot be wrong about it.
func childless() bool {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return true
		case err == nil && pid == 0:
			return false
		}
	}
}

// reap waits for every child; boxes are known by their pidfds, so nobody asks
// for the status. Without a child it sleeps until the next fork.
func (s *server) reap() {
	for {
		s.mu.Lock()
		seen := s.forks
		s.mu.Unlock()
		if _, err := unix.Wait4(-1, nil, 0, nil); !errors.Is(err, unix.ECHILD) {
			continue
		}
		s.mu.Lock()
		s.idle.Reset(Linger)
		for s.forks == seen {
			s.born.Wait()
		}
		s.mu.Unlock()
	}
}

func (s *server) forked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forks++
	s.born.Signal()
}

// serve answers one connection on a thread of its own, which a blocking read
// wakes without a detour.
func (s *server) serve(conn int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer s.count(-1)
	defer unix.Close(conn)
	if keepCaps() != nil {
		return
	}
	var last *child
	defer func() {
		if last != nil {
			last.wait()
		}
	}()
	buf := make([]byte, 4096)
	oob := make([]byte, unix.CmsgSpace(64*4))
	for {
		n, oobn, flags, _, err := unix.Recvmsg(conn, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		fds, err := ParseRights(oob[:oobn])
		ok := err == nil && flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) == 0 && s.handle(conn, buf[:n], fds, &last)
		for _, fd := range fds {
			unix.Close(fd)
		}
		if !ok {
			return
		}
	}
}

// handle answers one request; false ends the connection.
func (s *server) handle(conn int, msg []byte, fds []int, last **child) bool {
	var req Request
	if guestproto.Unmarshal(msg, &req) != nil {
		return false
	}
	switch req.Kind {
	case KindQuit:
		s.quit(conn)
		return true
	case KindSpawn:
		if req.SetFDs(fds) != nil {
			return false
		}
	default:
		return false
	}
	var reply Reply
	*last, reply = spawn(&req, *last)
	s.forked()
	var rights []byte
	if reply.PidFD >= 0 {
		defer unix.Close(reply.PidFD)
		rights = unix.UnixRights(reply.PidFD)
	}
	if err := send(conn, &reply, rights); err != nil {
		// The daemon is gone: nobody knows of this child, so it must not stay.
		if reply.PidFD >= 0 {
			_ = unix.PidfdSendSignal(reply.PidFD, unix.SIGKILL, nil, 0)
		}
		return false
	}
	return true
}

func (s *server) quit(conn int) {
	reply := Reply{PidFD: -1}
	none := childless()
	if !none {
		reply.Errno, reply.Step = syscall.EBUSY, "quit"
	}
	_ = send(conn, &reply, nil)
	if none {
		os.Exit(0)
	}
}

func send(conn int, reply *Reply, rights []byte) error {
	for {
		err := unix.Sendmsg(conn, guestproto.Marshal(nil, reply), rights, nil, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
