package guest

import (
	"bytes"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// leaf is the cgroup2 directory of one op: whatever its processes do to hide
// (setsid, double forks), they stay in it.
type leaf struct {
	name   string
	dir    int
	events int // cgroup.events, kept open: it is read after every op
	// base is the CPU time that earlier ops in this leaf used.
	base cpuTime
	// killed: the kernel kills what is cloned into a cgroup that was killed once.
	killed bool
}

type cpuTime struct{ user, sys int64 } // µs

// leaves makes and keeps the leaves below the agent's cgroup. Empty leaves are
// used again: making and removing one costs more than the rest of a small op.
type leaves struct {
	mu   sync.Mutex
	free []*leaf
	next int
}

// maxFreeLeaves are kept; more were needed at once and are removed when empty.
const maxFreeLeaves = 4

// get gives an empty leaf below agent, or nil when the kernel gives none.
func (l *leaves) get(agent int) *leaf {
	l.mu.Lock()
	if n := len(l.free); n > 0 {
		f := l.free[n-1]
		l.free = l.free[:n-1]
		l.mu.Unlock()
		return f
	}
	l.next++
	name := "op-" + strconv.Itoa(l.next)
	l.mu.Unlock()
	return newLeaf(agent, name)
}

func newLeaf(agent int, name string) *leaf {
	// A directory that is there already is not taken: it may have been killed.
	if err := unix.Mkdirat(agent, name, 0o755); err != nil {
		return nil
	}
	f := &leaf{name: name, dir: -1, events: -1}
	var err error
	if f.dir, err = unix.Openat(agent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		f.events, err = unix.Openat(f.dir, "cgroup.events", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		f.remove(agent)
		return nil
	}
	return f
}

// spare makes one leaf ahead, so that the next op finds it.
func (l *leaves) spare(agent int) {
	l.mu.Lock()
	n := len(l.free)
	l.mu.Unlock()
	if n == 0 {
		if f := l.get(agent); f != nil {
			l.put(agent, f)
		}
	}
}

// put takes back an empty leaf.
func (l *leaves) put(agent int, f *leaf) {
	f.base = f.cpu()
	l.mu.Lock()
	if len(l.free) < maxFreeLeaves && !f.killed {
		l.free = append(l.free, f)
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	f.remove(agent)
}

func (f *leaf) remove(agent int) {
	for _, fd := range []int{f.events, f.dir} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	_ = unix.Unlinkat(agent, f.name, unix.AT_REMOVEDIR) // fails only when a process is left: the daemon removes the tree
}

// populated tells whether a living process is in the leaf.
func (f *leaf) populated() bool {
	var b [128]byte
	n, err := unix.Pread(f.events, b[:], 0)
	return err == nil && bytes.Contains(b[:n], []byte("populated 1"))
}

// kill ends every process of the leaf at once; a fork under way does not escape.
func (f *leaf) kill() bool {
	f.killed = true
	return writeFile(f.dir, "cgroup.kill", "1")
}

func writeFile(dir int, name, value string) bool {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err == nil
}

// pids lists the leaf's processes.
func (f *leaf) pids() []int {
	var list []int
	for line := range bytes.Lines(f.read("cgroup.procs")) {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil && pid > 0 {
			list = append(list, pid)
		}
	}
	return list
}

// cpu is the CPU time of the leaf's processes, the dead ones included.
func (f *leaf) cpu() (t cpuTime) {
	for line := range bytes.Lines(f.read("cpu.stat")) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		v, _ := strconv.ParseInt(string(value), 10, 64)
		switch string(key) {
		case "user_usec":
			t.user = v
		case "system_usec":
			t.sys = v
		}
	}
	return t
}

func (f *leaf) read(name string) []byte {
	fd, err := unix.Openat(f.dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	return readAll(fd, 1<<20, 0)
}
