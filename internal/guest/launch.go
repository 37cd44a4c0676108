package guest

import (
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guest/setup"
	"github.com/dsec-platform/dsec/internal/guest/spawn"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// launch is a checked request: what to start, where, as whom.
type launch struct {
	program  string
	paths    []string
	argv     []string
	env      []string
	dir      string
	softDir  bool // dir is a default: start in / where it cannot be entered
	user     user
	maxOut   int64
	script   string // too long for an argument: handed over by descriptor
	settings *setup.Settings
}

// maxArg is what the kernel takes as one argument (MAX_ARG_STRLEN, less the NUL).
const maxArg = 128<<10 - 1

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// scriptFD is where a shell finds a script that is too long for an argument, or
// a shell session's state.
const scriptFD = 98

func check(r *guestproto.ExecRequest, s *setup.Settings) (*launch, *guestproto.WireError) {
	if !validOpID(r.OpID) {
		return nil, userError("invalid_argument", "op_id", "not 1 to 64 characters [A-Za-z0-9_-]", "send a valid op id")
	}
	if (len(r.Argv) > 0) == (r.Script != "") {
		return nil, userError("invalid_argument", "argv", "exactly one of argv and script must be set", "send one of them")
	}
	if r.ShellSession != "" && r.Script == "" {
		return nil, userError("invalid_argument", "shell_session", "a shell session runs scripts, not argv", "send a script")
	}
	if r.Cwd != "" && r.Cwd[0] != '/' && r.Cwd != "~" && !strings.HasPrefix(r.Cwd, "~/") {
		return nil, userError("invalid_argument", "cwd "+clipped(r.Cwd), "not an absolute path", "give an absolute path, or one below the home: ~/…")
	}
	for _, list := range [][]string{r.Argv, r.Env, {r.Script, r.Cwd, r.Shell, r.User, r.ShellSession}} {
		for _, v := range list {
			if strings.IndexByte(v, 0) >= 0 {
				return nil, userError("invalid_argument", "request", "an argument, variable or name holds a NUL byte", "pass such data by stdin or a file")
			}
		}
	}
	for _, v := range r.Env {
		if strings.IndexByte(v, '=') < 1 {
			return nil, userError("invalid_argument", "env "+clipped(v), "not of the form NAME=value", "send NAME=value")
		}
	}
	l := &launch{settings: s, dir: r.Cwd, maxOut: r.MaxOutput}
	if l.maxOut <= 0 {
		l.maxOut = guestproto.DefaultOutput
	}
	l.maxOut = min(l.maxOut, guestproto.MaxOutput)
	if err := l.setUser(r.User); err != nil {
		return nil, err
	}
	l.env = l.environment(r)
	if l.dir == "" {
		l.softDir = true
		l.dir = "/workspace"
		if !isDir(l.dir) {
			l.dir = l.user.home
		}
	}
	if l.dir != "" && l.dir[0] == '~' {
		l.softDir = l.dir == "~"
		l.dir = path.Join(orRoot(l.user.home), l.dir[1:])
	}
	l.setProgram(r)
	return l, nil
}

func validOpID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_' && c != '-' {
			return false
		}
	}
	return len(id) > 0 && len(id) <= guestproto.MaxOpID
}

func isDir(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func (l *launch) setUser(name string) *guestproto.WireError {
	if name == "" {
		name = l.settings.User
	}
	if os.Geteuid() != 0 {
		return l.setOwnUser(name)
	}
	if name == "" {
		name = "root"
	}
	u, ok := lookupUser(name)
	if !ok {
		return userError("not_found", "user "+clipped(name), "not in the box's passwd", "name a user of the template, or a number")
	}
	l.user = u
	return nil
}

// setOwnUser is for a guest without root, which can run as itself only.
func (l *launch) setOwnUser(name string) *guestproto.WireError {
	own, ok := lookupUser(itoa(os.Geteuid()))
	if u, found := lookupUser(name); name != "" && (!found || u.uid != own.uid) || !ok {
		return userError("unsupported", "user "+clipped(name), "this box cannot change users", "leave the user out")
	}
	l.user = own
	return nil
}

// environment is: defaults, then the box's, then the request's.
func (l *launch) environment(r *guestproto.ExecRequest) []string {
	u := &l.user
	env := make([]string, 0, 8+len(l.settings.Env)+len(r.Env))
	env = append(env, "PATH="+defaultPath, "HOME="+orRoot(u.home), "USER="+u.name, "LOGNAME="+u.name, "LANG=C.UTF-8")
	if u.shell != "" {
		env = append(env, "SHELL="+u.shell)
	}
	if r.PTY {
		env = append(env, "TERM=xterm-256color")
	}
	env = append(env, l.settings.Env...)
	return lastWins(append(env, r.Env...))
}

func orRoot(dir string) string {
	if dir == "" {
		return "/"
	}
	return dir
}

// lastWins keeps the last value of each variable.
func lastWins(env []string) []string {
	at := make(map[string]int, len(env))
	out := env[:0]
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if i, ok := at[name]; ok {
			out[i] = v
			continue
		}
		at[name] = len(out)
		out = append(out, v)
	}
	return out
}

func getenv(env []string, name string) string {
	for _, v := range env {
		if k, value, _ := strings.Cut(v, "="); k == name {
			return value
		}
	}
	return ""
}

func (l *launch) setProgram(r *guestproto.ExecRequest) {
	if r.Script == "" {
		l.argv, l.program = r.Argv, r.Argv[0]
		l.paths = candidates(r.Argv[0], getenv(l.env, "PATH"))
		return
	}
	l.program = shellOf(r.Shell)
	l.paths = candidates(l.program, getenv(l.env, "PATH"))
	l.argv = []string{path.Base(l.program), "-c", r.Script}
	if len(r.Script) > maxArg {
		l.script = r.Script
		l.argv[2] = ". /proc/self/fd/" + itoa(scriptFD)
	}
}

// shellOf is the shell to use: the one asked for, else bash, else sh.
func shellOf(shell string) string {
	if shell != "" {
		return shell
	}
	if unix.Access("/bin/bash", unix.X_OK) == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}

// maxCandidates bounds the directories of PATH that are tried.
const maxCandidates = 64

func candidates(program, path string) []string {
	if strings.IndexByte(program, '/') >= 0 || program == "" {
		return []string{program}
	}
	var list []string
	for dir := range strings.SplitSeq(path, ":") {
		if len(list) == maxCandidates {
			break
		}
		if dir == "" {
			dir = "."
		}
		list = append(list, dir+"/"+program)
	}
	return list
}

// bounding is what root in the box may do; see the design's list.
const bounding = 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_FOWNER | 1<<unix.CAP_FSETID | 1<<unix.CAP_KILL |
	1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_SETFCAP | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_SYS_CHROOT

// childBounding is the bounding set of what the guest starts: 0, as its own is, where it is not root.
func childBounding() uint64 {
	if os.Geteuid() != 0 {
		return 0
	}
	return bounding
}

// spec is the launch as the child's steps.
func (l *launch) spec(o *op) *spawn.Spec {
	s := &spawn.Spec{
		Paths: l.paths, Argv: l.argv, Env: l.env, Dir: l.dir, SoftDir: l.softDir,
		NoNew: !l.settings.NewPrivileges, Seccomp: l.settings.Seccomp,
		Tasks: l.settings.AgentTasks, ResetOOMScore: o.srv.oomScored,
		Rlimits: rlimits(l.settings), Bounding: childBounding(),
	}
	if os.Geteuid() == 0 {
		s.Cred = &spawn.Cred{UID: l.user.uid, GID: l.user.gid, Groups: l.user.groups}
	}
	if o.leaf != nil {
		s.Cgroup = o.leaf.dir
	}
	return s
}

// Defaults of agent processes' limits. A core limit of 0 would not stop a core
// pattern that pipes to a program of the host; 1 does.
const (
	defaultNoFile = 65536
	coreLimit     = 1
)

func rlimits(s *setup.Settings) []spawn.Rlimit {
	list := []spawn.Rlimit{
		{Resource: unix.RLIMIT_NOFILE, Max: or(s.NoFile, defaultNoFile)},
		{Resource: unix.RLIMIT_CORE, Max: coreLimit},
	}
	if s.FSize > 0 {
		list = append(list, spawn.Rlimit{Resource: unix.RLIMIT_FSIZE, Max: s.FSize})
	}
	if s.Stack > 0 {
		list = append(list, spawn.Rlimit{Resource: unix.RLIMIT_STACK, Max: s.Stack})
	}
	for i := range list {
		var have unix.Rlimit
		if unix.Getrlimit(list[i].Resource, &have) == nil {
			list[i].Max = min(list[i].Max, have.Max) // only the machine's root may raise a hard limit
		}
	}
	return list
}

func or(v, def uint64) uint64 {
	if v == 0 {
		return def
	}
	return v
}
