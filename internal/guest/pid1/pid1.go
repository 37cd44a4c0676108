// Package pid1 is what dsec-guest does as the first process of a box: it makes
// itself hard to reach, takes connections on the listening socket that it was born
// with, and hands them to set-up or to the guest's server.
package pid1

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest"
	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guest/sleeper"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// ListenFD is the listening socket.
const ListenFD = sleeper.ListenFD

// Patience with the daemon: for the boot of this box, and for the preamble of a
// connection.
const (
	bootPatience     = 15 * time.Second
	preamblePatience = 10 * time.Second
)

// Run serves the box until its boot fails or the socket breaks. args are the program's: they say whether it has rested.
func Run(build string, args []string) error {
	if err := setup.Harden(); err != nil {
		return err
	}
	ignoreSignals()
	unix.CloseOnExec(ListenFD)
	if err := unix.SetNonblock(ListenFD, true); err != nil {
		return err
	}
	l := &listener{file: os.NewFile(ListenFD, "listener"), box: &setup.Box{}, failed: make(chan error, 1)}
	l.srv = guest.NewServer(guest.Options{Settings: l.box.Settings, Init: true, Build: build, Rest: l.rest})
	l.box.Prepare = l.srv.Prepare
	if len(args) == restArgs {
		if err := l.wake(args); err != nil {
			return err
		}
	}
	go l.accept()
	for {
		select {
		case <-l.box.Booted():
			return <-l.failed
		case err := <-l.failed:
			return err
		case <-time.After(bootPatience):
			if l.waiting.Load() == 0 { // nobody will say what this box shall be
				return errors.New("no boot")
			}
		}
	}
}

type listener struct {
	file    *os.File
	box     *setup.Box
	srv     *guest.Server
	failed  chan error
	waiting atomic.Int32 // setup connections of a box that does not stand yet

	mu   sync.Mutex // held while a connection is taken, and while the guest goes to rest
	open int        // connections
}

// readable parks the goroutine, not a thread, until there is something to read.
func readable(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN
	})
}

func (l *listener) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
}

func (l *listener) accept() {
	conn, err := l.file.SyscallConn()
	if err != nil {
		l.fail(err)
		return
	}
	for {
		var fd int
		var err error
		rerr := conn.Read(func(s uintptr) bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			if fd, _, err = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK); err == nil {
				l.open++
			}
			return err != unix.EAGAIN
		})
		switch {
		case rerr != nil:
			l.fail(rerr)
			return
		case err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOBUFS || err == unix.ENOMEM:
			time.Sleep(10 * time.Millisecond)
		case err == nil:
			go l.serve(os.NewFile(uintptr(fd), "control"), fd)
		}
	}
}

// serve hands one connection over. Only a process outside of the box, which has
// no pid in here, may speak to its guest.
func (l *listener) serve(f *os.File, fd int) {
	defer func() {
		_ = f.Close()
		l.srv.Touch() // before the guest may rest
		l.mu.Lock()
		l.open--
		l.mu.Unlock()
	}()
	if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil || cred.Pid != 0 {
		return
	}
	_ = f.SetReadDeadline(time.Now().Add(preamblePatience))
	var p [guestproto.PreambleSize]byte
	if _, err := io.ReadFull(f, p[:]); err != nil {
		return
	}
	_ = f.SetReadDeadline(time.Time{})
	switch p {
	case guestproto.Preamble(guestproto.PreambleControl):
		_ = l.srv.Serve(f)
	case guestproto.Preamble(guestproto.PreambleSetup):
		if l.box.Settings() == nil {
			l.waiting.Add(1)
			defer l.waiting.Add(-1)
		}
		if err := l.box.Serve(fd, func() error { return readable(f) }); err != nil && l.box.Settings() == nil {
			l.fail(err)
		}
	}
}
