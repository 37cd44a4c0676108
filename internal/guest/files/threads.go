package files

import (
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxThreads bounds the threads that work at a time: each counts against the agent's pids limit.
const maxThreads = 6

// identity is who the kernel takes a thread for when it checks file access.
type identity struct {
	uid, gid uint32
	groups   []uint32
}

// threads runs functions on operating system threads that took on an identity.
type threads struct {
	base  identity // of the process
	euid  int
	jobs  chan job
	mu    sync.Mutex
	count int
	group sync.WaitGroup
}

type job struct {
	who  identity
	fn   func() error
	done chan error
}

func (t *threads) init() {
	t.base = identity{uid: uint32(unix.Geteuid()), gid: uint32(unix.Getegid())}
	groups, _ := unix.Getgroups() // none, then
	for _, g := range groups {
		t.base.groups = append(t.base.groups, uint32(g))
	}
	t.euid = unix.Geteuid()
	t.jobs = make(chan job)
}

func (t *threads) close() {
	close(t.jobs)
	t.group.Wait()
}

// run runs fn as who and gives its error, or EPERM where this process may not be who.
func (t *threads) run(who identity, fn func() error) error {
	if who.uid == t.base.uid {
		// The process's own user, with the process's capabilities and groups.
		return fn()
	}
	if t.euid != 0 {
		return unix.EPERM
	}
	j := job{who, fn, make(chan error, 1)}
	select {
	case t.jobs <- j:
	default:
		t.grow()
		t.jobs <- j
	}
	return <-j.done
}

func (t *threads) grow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count < maxThreads {
		t.count++
		t.group.Go(t.loop)
	}
}

func (t *threads) loop() {
	runtime.LockOSThread()
	for j := range t.jobs {
		err := assume(j.who)
		if err == nil {
			err = j.fn()
		}
		restored := assume(t.base) == nil
		j.done <- err
		if !restored {
			// The goroutine ends with its thread locked, and so ends the thread.
			t.mu.Lock()
			t.count--
			t.mu.Unlock()
			t.grow() // a job may be waiting
			return
		}
	}
	runtime.UnlockOSThread()
}

// assume changes the calling thread, and only it, and checks that it is so. The
// kernel takes the file capabilities of root away with fsuid 0 and gives them back with it.
func assume(who identity) error {
	var list unsafe.Pointer
	if len(who.groups) > 0 {
		list = unsafe.Pointer(&who.groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(who.groups)), uintptr(list), 0); e != 0 {
		return e
	}
	for _, c := range []struct {
		call uintptr
		id   uint32
	}{{unix.SYS_SETFSGID, who.gid}, {unix.SYS_SETFSUID, who.uid}} {
		unix.RawSyscall(c.call, uintptr(c.id), 0, 0)
		// These calls tell no errors; one with an impossible id tells the current one.
		if now, _, _ := unix.RawSyscall(c.call, ^uintptr(0), 0, 0); uint32(now) != c.id {
			return unix.EPERM
		}
	}
	return nil
}
