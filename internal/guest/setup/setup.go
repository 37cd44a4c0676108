package setup

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// Box is the state of the box that this guest is PID 1 of. The zero value is
// ready. Methods are safe for concurrent use.
type Box struct {
	// Prepare, if not nil, is told the agent's cgroup v1 `tasks` files and its cgroup2
	// directory as soon as they are known, at the latest at the begin of the boot.
	Prepare func(tasks []int, cgroup int)

	mu       sync.Mutex // one setup at a time
	claimed  bool
	groups   *descriptors // of a SetupPrepare, until the boot
	settings atomic.Pointer[Settings]
	once     sync.Once
	booted   chan struct{}
}

// Booted is closed when the boot was applied.
func (b *Box) Booted() <-chan struct{} {
	b.once.Do(func() { b.booted = make(chan struct{}) })
	return b.booted
}

// Settings are nil before the boot.
func (b *Box) Settings() *Settings { return b.settings.Load() }

// Harden makes this process untraceable and unreadable for the agent. Call it
// before anything else.
func Harden() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// Serve handles one setup connection whose preamble was read: one message, one
// reply, and after a SetupPrepare the boot. It does not close fd. wait returns when there is
// something to read. An error of the step that failed is sent to
// the daemon too; after a failed boot the guest should exit.
func (b *Box) Serve(fd int, wait func() error) error {
	for {
		if err := wait(); err != nil {
			return err
		}
		var msg guestproto.Setup
		fds, err := guestproto.RecvSetup(fd, &msg)
		if err != nil {
			return err
		}
		if len(msg.FDs) != len(fds) {
			closeAll(fds)
			return guestproto.ErrBadMessage
		}
		err = b.apply(&msg, fds)
		var reply guestproto.SetupReply
		if err != nil {
			reply.Error = wireError(err)
		}
		if err = errors.Join(err, guestproto.SendSetup(fd, &reply, nil)); err != nil || msg.Kind != guestproto.SetupPrepare {
			return err
		}
	}
}

func (b *Box) apply(msg *guestproto.Setup, fds []int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	given := sortFDs(msg.FDs, fds)
	defer given.close()
	switch old := b.settings.Load(); {
	case msg.Kind == guestproto.SetupPrepare && old == nil && b.groups == nil:
		b.groups = given.takeGroups()
		b.prepare(b.groups)
	case msg.Kind == guestproto.SetupBoot && old == nil:
		if b.groups != nil {
			given.giveGroups(b.groups)
			b.groups = nil
		} else {
			b.prepare(given)
		}
		s, err := boot(msg, given)
		if err != nil {
			return err
		}
		b.claimed = !msg.Pooled
		b.settings.Store(s)
		b.Booted()
		close(b.booted)
	case msg.Kind == guestproto.SetupClaim && old != nil && !b.claimed:
		b.claimed = true
		s, err := claim(old, msg, given)
		if err != nil {
			return err
		}
		b.settings.Store(s)
	default:
		return stepError{"setup", "", errors.New("not expected in this state")}
	}
	return nil
}

func (b *Box) prepare(d *descriptors) {
	if b.Prepare != nil {
		b.Prepare(d.tasks, d.cgroup)
	}
}

func newSettings(msg *guestproto.Setup) *Settings {
	return &Settings{
		Env: msg.Env, User: msg.User, Hostname: msg.Hostname,
		NewPrivileges: msg.NewPrivileges, Seccomp: msg.Seccomp,
		NoFile: msg.NoFile, FSize: msg.FSize, Stack: msg.Stack,
		AgentCgroup: -1, AgentMemory: -1, AgentPids: -1,
	}
}

// descriptors are the passed ones by role. What a step takes over it sets to
// -1 (or nil), so that close is right after every outcome.
type descriptors struct {
	root     int
	mounts   []mount
	writable []mount
	tasks    []int
	cgroup   int
	memory   int
	pids     int
}

type mount struct {
	path string
	fd   int
}

func sortFDs(desc []guestproto.SetupFD, fds []int) *descriptors {
	d := &descriptors{root: -1, cgroup: -1, memory: -1, pids: -1}
	for i, f := range desc {
		switch f.Role {
		case guestproto.FDRoot:
			d.root = fds[i]
		case guestproto.FDMount:
			d.mounts = append(d.mounts, mount{f.Path, fds[i]})
		case guestproto.FDWritable:
			d.writable = append(d.writable, mount{f.Path, fds[i]})
		case guestproto.FDAgentTasks:
			d.tasks = append(d.tasks, fds[i])
		case guestproto.FDAgentCgroup:
			d.cgroup = fds[i]
		case guestproto.FDAgentMemory:
			d.memory = fds[i]
		case guestproto.FDAgentPids:
			d.pids = fds[i]
		default: // of a newer daemon: not needed by this guest
			unix.Close(fds[i])
		}
	}
	return d
}

// takeGroups moves the agent's groups into descriptors of their own.
func (d *descriptors) takeGroups() *descriptors {
	g := &descriptors{root: -1}
	g.giveGroups(d)
	return g
}

// giveGroups takes over the agent's groups of from. d has none.
func (d *descriptors) giveGroups(from *descriptors) {
	d.tasks, d.cgroup, d.memory, d.pids = from.tasks, from.cgroup, from.memory, from.pids
	from.tasks, from.cgroup, from.memory, from.pids = nil, -1, -1, -1
}

func (d *descriptors) close() {
	closeAll(d.tasks)
	for _, m := range append(d.mounts, d.writable...) {
		unix.Close(m.fd)
	}
	closeAll([]int{d.root, d.cgroup, d.memory, d.pids})
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// stepError names the step and the object that failed.
type stepError struct {
	step, object string
	err          error
}

func (e stepError) Error() string {
	return strings.TrimSpace(e.step+" "+e.object) + ": " + e.err.Error()
}

func (e stepError) Unwrap() error { return e.err }

// noUser is a default user whom the template does not have: every op of the box would fail.
type noUser string

func (u noUser) Error() string {
	return "there is no user " + strconv.Quote(string(u)) + " in its /etc/passwd"
}

func wireError(err error) *guestproto.WireError {
	w := &guestproto.WireError{Class: "policy", Reason: "internal", Message: err.Error()}
	if _, ok := errors.AsType[noUser](err); ok {
		w.Class, w.Reason, w.Object = "user", "invalid_argument", "field user"
		w.Remedy = "name a user of the template, such as user or root, or a number"
	}
	if s, ok := errors.AsType[stepError](err); ok {
		w.Object = s.object
		switch {
		case s.object == "":
		case errors.Is(err, unix.ENOENT):
			w.Class, w.Reason = "user", "not_found"
			w.Remedy = "name a path that exists in the template, or use a writable root"
		case errors.Is(err, unix.EROFS), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
			// The box's own mounts are made of what it has: only a path that was asked for can meet this.
			w.Class, w.Reason = "user", "invalid_argument"
			w.Remedy = "name a directory in which nothing of the platform is mounted, such as one below /workspace"
		}
	}
	return w
}
