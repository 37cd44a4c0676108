package rootfs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime/native/thread"
)

// secbitNoSetuidFixup keeps the capabilities of a thread whose file-system uid
// changes. Without it the overlay's mount gives EACCES.
const secbitNoSetuidFixup = 1 << 2

// mounter is a set of threads that mount. They differ from the other threads
// of the process (securebits, at times the file-system ids, on older kernels
// the mount namespace), so they never go back to the scheduler: a thread whose
// state cannot be restored dies and is replaced.
type mounter struct {
	jobs  chan job
	quit  chan struct{}
	setup func() error // additional state of a new thread
}

type job struct {
	run  func() error
	base int // file-system ids during the job; -1: unchanged
	done chan<- error
}

func newMounter(threads int, setup func() error) *mounter {
	m := &mounter{jobs: make(chan job), quit: make(chan struct{}), setup: setup}
	for range threads {
		thread.Go(m.thread)
	}
	return m
}

// do runs fn on a mounting thread.
func (m *mounter) do(base int, fn func() error) error {
	done := make(chan error, 1)
	select {
	case m.jobs <- job{fn, base, done}:
		return <-done
	case <-m.quit:
		return errClosed
	}
}

var errClosed = errors.New("mounts: closed")

// close ends the threads once their jobs are done.
func (m *mounter) close() { close(m.quit) }

func (m *mounter) thread() {
	err := unix.Prctl(unix.PR_SET_SECUREBITS, secbitNoSetuidFixup, 0, 0, 0)
	if err == nil {
		// An overlay writes with its mounter's credentials, and who has this
		// capability is above quotas and eats the reserved blocks of a disk.
		err = thread.Drop(unix.CAP_SYS_RESOURCE)
	}
	if err == nil && m.setup != nil {
		err = m.setup()
	}
	for {
		select {
		case <-m.quit:
			return
		case j := <-m.jobs:
			if err != nil {
				j.done <- pathErr("prepare", "mounting thread", err)
			} else if !m.work(j) {
				thread.Go(m.thread)
				return
			}
		}
	}
}

// work does a job and says whether the thread is as it was.
func (m *mounter) work(j job) bool {
	if !become(j.base) {
		j.done <- pathErr("set file-system ids of", "mounting thread", unix.EPERM)
		return false
	}
	err := j.run()
	same := become(0)
	j.done <- err
	return same
}

// become sets the file-system ids of this thread and says whether they are so.
func become(id int) bool {
	if id < 0 {
		return true
	}
	_, _ = unix.SetfsgidRetGid(id)
	_, _ = unix.SetfsuidRetUid(id)
	gid, _ := unix.SetfsgidRetGid(-1)
	uid, _ := unix.SetfsuidRetUid(-1)
	return uid == id && gid == id
}
