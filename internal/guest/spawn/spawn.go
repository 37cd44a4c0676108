package spawn

import (
	"iter"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Step names what a child was doing when it failed.
type Step string

const (
	StepClone   Step = "clone"
	StepCgroup  Step = "cgroup"
	StepFiles   Step = "descriptors"
	StepTTY     Step = "terminal"
	StepLimits  Step = "limits"
	StepCaps    Step = "capabilities"
	StepUser    Step = "user"
	StepChdir   Step = "chdir"
	StepSeccomp Step = "seccomp"
	StepExec    Step = "exec"
)

// Error says which step failed.
type Error struct {
	Step  Step
	Errno syscall.Errno
}

func (e *Error) Error() string { return string(e.Step) + ": " + e.Errno.Error() }

// Unwrap gives the error number.
func (e *Error) Unwrap() error { return e.Errno }

// Rlimit is one resource limit of the child.
type Rlimit struct {
	Resource int
	Max      uint64 // soft and hard
}

// Cred are the ids that the child takes. The guest must be box root.
type Cred struct {
	UID, GID uint32
	Groups   []uint32
}

// File is a descriptor of the parent and its number in the child.
type File struct{ From, To int }

// Spec says what to start. Every descriptor of the guest must be close-on-exec.
type Spec struct {
	// Paths are tried in order until one can be executed.
	Paths []string
	Argv  []string
	Env   []string
	Dir   string // empty: the guest's
	// SoftDir: start in / where Dir cannot be entered.
	SoftDir bool
	Files   []File
	TTY     bool // descriptor 0 becomes the controlling terminal
	Cred    *Cred
	// Bounding is the capability bounding set (bit per capability); 0: as the guest's is.
	Bounding uint64
	NoNew    bool   // no_new_privs
	Seccomp  []byte // raw BPF instructions
	Rlimits  []Rlimit
	Tasks    []int // cgroup v1 `tasks` files to join
	Cgroup   int   // cgroup2 directory to be born in; 0: none
	// ResetOOMScore gives the child oom_score_adj 0 where the guest has another.
	ResetOOMScore bool
	// Pid is written by the kernel before the child runs: whoever reaps it may
	// see it end before Start has returned.
	Pid *atomic.Int32
}

// Start starts the process as the leader of a session of its own and gives a
// pidfd of it. It returns when the program has been executed, or with *Error.
// In both cases where a child existed (Pid is set) somebody has to reap it.
func Start(s *Spec) (pidfd int, err error) { return start(s, nil) }

// start forks by the launcher's thread, whose children are in the cgroups, within the bounding set and confined, or here (nil).
func start(s *Spec, l *Launcher) (pidfd int, err error) {
	if s.Pid == nil {
		s.Pid = new(atomic.Int32)
	}
	p, args, failed := compile(s, l)
	defer p.free() // whatever comes of it, the child makes no more of these calls
	fd := new(int32)
	*fd = -1
	args.pidFD = uint64(keepPtr(p, fd))
	calls := p.link()
	launch := fork
	if l != nil {
		launch = l.fork
	}
	_, errno := launch(args, calls, failed)
	runtime.KeepAlive(p)
	runtime.KeepAlive(s)
	if errno != 0 {
		return -1, &Error{StepClone, errno}
	}
	if atomic.LoadUint32(failed) == 0 {
		return int(*fd), nil
	}
	_ = unix.Close(int(*fd))
	return -1, p.failure()
}

// failure finds the call that ended the child. Of several programs that could
// not be executed the most telling error counts.
func (p *program) failure() *Error {
	var exec syscall.Errno
	for i := range p.calls {
		c := &p.calls[i]
		e := c.errno()
		if e == 0 {
			continue
		}
		if p.steps[i] == StepExec {
			if exec == 0 || exec == unix.ENOENT || exec == unix.ENOTDIR {
				exec = e
			}
		} else if c.lax == 0 {
			return &Error{p.steps[i], e}
		}
	}
	return &Error{StepExec, exec}
}

// compile lists what the child does. Without a launcher it joins the cgroups, drops capabilities and confines itself; a launcher's child is born so.
//
//go:noinline
func compile(s *Spec, l *Launcher) (*program, *cloneArgs, *uint32) {
	p := programs.Get().(*program)
	p.cgroups(s, l == nil)
	p.add(StepTTY, unix.SYS_SETSID)
	p.files(s)
	if s.TTY {
		p.add(StepTTY, unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0)
	}
	p.add(StepLimits, unix.SYS_UMASK, 0o022)
	p.lax(StepLimits, unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, timerSlack, 0, 0, 0) // the guest may have another
	for _, r := range s.Rlimits {
		lim := &unix.Rlimit{Cur: r.Max, Max: r.Max}
		p.add(StepLimits, unix.SYS_PRLIMIT64, 0, uintptr(r.Resource), keepPtr(p, lim), 0)
	}
	p.privileges(s, l)
	switch {
	case s.SoftDir:
		p.add(StepChdir, unix.SYS_CHDIR, p.string("/"))
		p.lax(StepChdir, unix.SYS_CHDIR, p.string(s.Dir))
	case s.Dir != "":
		p.add(StepChdir, unix.SYS_CHDIR, p.string(s.Dir))
	}
	p.add(StepExec, unix.SYS_RT_SIGPROCMASK, 2, keepPtr(p, new(uint64)), 0, 8)
	if l == nil && len(s.Seccomp) > 0 {
		p.seccomp(s.Seccomp)
	}
	argv, envv := p.vector(s.Argv), p.vector(s.Env)
	for _, path := range s.Paths {
		p.lax(StepExec, unix.SYS_EXECVE, p.string(path), argv, envv)
	}
	args := &cloneArgs{
		flags:      cloneVM | cloneVfork | clonePidFD | cloneParentSetTID | cloneClearSighand,
		exitSignal: uint64(unix.SIGCHLD),
		parentTID:  uint64(keepPtr(p, s.Pid)),
	}
	if s.Cgroup > 0 {
		args.flags |= cloneIntoCgroup
		args.cgroup = uint64(s.Cgroup)
	}
	return p, args, keepPtrOf(p, new(uint32))
}

// timerSlack is the kernel's own, ns.
const timerSlack = 50_000

func keepPtrOf[T any](p *program, v *T) *T {
	p.keep = append(p.keep, v)
	return v
}

// files gives the child exactly the descriptors asked for.
func (p *program) files(s *Spec) {
	top := 0
	for _, f := range s.Files {
		top = max(top, f.To)
	}
	// A source that a dup may overwrite, or that is its own target, is moved away first.
	var moves, dups []int
	for _, f := range s.Files {
		if f.From <= top {
			p.add(StepFiles, unix.SYS_FCNTL, uintptr(f.From), unix.F_DUPFD_CLOEXEC, uintptr(top+1))
			moves = append(moves, len(p.calls)-1)
		} else {
			moves = append(moves, -1)
		}
	}
	used := make([]bool, top+1)
	for i, f := range s.Files {
		p.add(StepFiles, unix.SYS_DUP3, uintptr(f.From), uintptr(f.To), 0)
		dups = append(dups, len(p.calls)-1)
		if moves[i] >= 0 {
			p.chain(moves[i], dups[i])
		}
		used[f.To] = true
	}
	for i := 0; i <= top; i++ {
		if used[i] {
			continue
		}
		j := i
		for j < top && !used[j+1] {
			j++
		}
		p.add(StepFiles, unix.SYS_CLOSE_RANGE, uintptr(i), uintptr(j), 0)
		i = j
	}
	p.add(StepFiles, unix.SYS_CLOSE_RANGE, uintptr(top+1), uintptr(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC)
}

// privileges gives up what the agent must not have, in the order that the
// kernel's checks ask for.
func (p *program) privileges(s *Spec, l *Launcher) {
	if l == nil {
		for c := range dropped(s.Bounding) {
			p.add(StepCaps, unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		}
	}
	if s.NoNew {
		p.add(StepCaps, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	c := s.Cred
	if c == nil {
		return
	}
	var groups uintptr
	if len(c.Groups) > 0 {
		groups = keepPtr(p, &c.Groups[0])
	}
	p.add(StepUser, unix.SYS_SETGROUPS, uintptr(len(c.Groups)), groups)
	p.add(StepUser, unix.SYS_SETRESGID, uintptr(c.GID), uintptr(c.GID), uintptr(c.GID))
	late := l == nil && len(s.Seccomp) > 0 && !s.NoNew && c.UID != 0
	if late { // a filter without no_new_privs needs SYS_ADMIN, also after the change of user
		p.add(StepUser, unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0, 0, 0)
	}
	p.add(StepUser, unix.SYS_SETRESUID, uintptr(c.UID), uintptr(c.UID), uintptr(c.UID))
	p.add(StepUser, unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if late {
		hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		data := &[2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
		p.add(StepCaps, unix.SYS_CAPSET, keepPtr(p, hdr), keepPtr(p, data))
	}
}

// dropped are the capabilities that are not in a bounding set; of no set, which is 0, none.
func dropped(bounding uint64) iter.Seq[uintptr] {
	return func(yield func(uintptr) bool) {
		for c := uintptr(0); bounding != 0 && c <= lastCap(); c++ {
			if bounding&(1<<c) == 0 && !yield(c) {
				return
			}
		}
	}
}

// lastCap is the highest capability of this kernel.
func lastCap() uintptr {
	if v := knownLastCap.Load(); v != 0 {
		return uintptr(v)
	}
	c := uintptr(unix.CAP_LAST_CAP)
	for c < 63 && capKnown(c+1) {
		c++
	}
	for c > 0 && !capKnown(c) {
		c--
	}
	knownLastCap.Store(uint32(c))
	return c
}

var knownLastCap atomic.Uint32

func capKnown(c uintptr) bool {
	_, _, e := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, c, 0, 0, 0, 0)
	return e == 0
}

func (p *program) seccomp(filter []byte) {
	prog := &unix.SockFprog{Len: uint16(len(filter) / insnSize), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	p.add(StepSeccomp, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, keepPtr(p, prog))
}
