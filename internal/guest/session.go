package guest

import (
	"bytes"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
	"github.com/dsec-platform/dsec/internal/guestproto/mux"
)

// sessions are the box's shell sessions. A session is no process but a saved
// state, loaded before and saved after each command: a command that hangs, kills
// its shell or execs another program cannot take the session with it.
type sessions struct {
	mu     sync.Mutex
	byName map[string]*session
}

// session is one shell session. Its state exists in this memory only and is handed
// to shells by descriptor.
type session struct {
	shell string
	uid   uint32 // state is code: only its own user's shells run it

	mu     sync.Mutex
	state  []byte
	closed bool // by its owner: a command that ends later saves nothing
}

const (
	maxSessions = 64
	maxState    = 1 << 20
	stateEnd    = "\n#dsec-end\n" // a state without it was cut short
)

// Descriptors that a session's shell finds besides scriptFD.
const (
	oldStateFD = 97
	stateFD    = 99
)

// enterSession turns the launch into a command of the session.
func (s *Server) enterSession(o *op, l *launch, r *guestproto.ExecRequest) error {
	ses, err := s.sessions.get(r.ShellSession, l, r.Shell)
	if err != nil {
		return err
	}
	ses.mu.Lock()
	state := ses.state
	ses.mu.Unlock()
	l.program = ses.shell
	l.paths = candidates(ses.shell, getenv(l.env, "PATH"))
	l.argv = []string{path.Base(ses.shell), "-c", ". /proc/self/fd/" + itoa(scriptFD)}
	if state != nil {
		l.env = append([]string{"PATH=" + getenv(l.env, "PATH")}, r.Env...)
	}
	l.script = ses.wrap(r, state == nil)
	if o.oldState, err = memfd("state", string(state)); err == nil {
		o.stateFD, err = memfd("state", "")
	}
	if err != nil {
		return err
	}
	o.session = ses
	return nil
}

func (t *sessions) get(name string, l *launch, shell string) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	object := "shell session " + clipped(name)
	if ses := t.byName[name]; ses != nil {
		if ses.uid != l.user.uid {
			return nil, userError("conflict", object, "it belongs to another user", "use one session per user")
		}
		if shell != "" && shell != ses.shell {
			return nil, userError("conflict", object, "it runs "+ses.shell, "use one session per shell")
		}
		return ses, nil
	}
	if len(t.byName) >= maxSessions {
		return nil, limitError("rate_limited", object, "there are 64 shell sessions", "close some")
	}
	if t.byName == nil {
		t.byName = map[string]*session{}
	}
	ses := &session{shell: l.program, uid: l.user.uid}
	t.byName[name] = ses
	return ses, nil
}

// restore adds a session of the life before.
func (t *sessions) restore(name string, ses *session) {
	if t.byName == nil {
		t.byName = map[string]*session{}
	}
	t.byName[name] = ses
}

// save keeps what the op's shell has written, if it got to the end of it. The
// state of a command that was killed is the one before it.
func (ses *session) save(o *op) {
	defer func() {
		closeFD(o.stateFD)
		o.stateFD = -1
	}()
	var st unix.Stat_t
	if unix.Fstat(o.stateFD, &st) != nil || st.Size == 0 || st.Size > maxState {
		return
	}
	state := readAll(o.stateFD, int(st.Size), int(st.Size))
	if !bytes.HasSuffix(state, []byte(stateEnd)) || !o.srv.budget.reserve(len(state)) {
		return
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.closed {
		o.srv.budget.release(len(state))
		return
	}
	o.srv.budget.release(len(ses.state))
	ses.state = state
}

func (s *Server) closeShell(st *mux.Stream, r *guestproto.OpRequest) error {
	s.sessions.mu.Lock()
	ses := s.sessions.byName[r.Name]
	delete(s.sessions.byName, r.Name)
	s.sessions.mu.Unlock()
	if ses == nil {
		return userError("not_found", "shell session "+clipped(r.Name), "no such session", "it is made by its first command")
	}
	for _, o := range s.ops.all() {
		o.mu.Lock()
		busy := o.session == ses && o.result == nil
		o.mu.Unlock()
		if busy {
			o.kill()
		}
	}
	ses.mu.Lock()
	s.budget.release(len(ses.state))
	ses.state, ses.closed = nil, true
	ses.mu.Unlock()
	return st.SendMessage(&guestproto.Reply{}, true)
}

// wrap is the program that a shell of the session runs: restore, user's script, save.
func (ses *session) wrap(r *guestproto.ExecRequest, fresh bool) string {
	var b strings.Builder
	bash := strings.HasPrefix(path.Base(ses.shell), "bash")
	if bash {
		b.WriteString(bashSave)
	} else {
		b.WriteString(shSave)
	}
	switch {
	case fresh && bash:
		b.WriteString("shopt -s expand_aliases\n")
	case !fresh:
		b.WriteString(". /proc/self/fd/97 2>/dev/null\n")
	}
	if bash { // a plain sh cannot name descriptors over 9
		b.WriteString("exec 97<&- 98<&-\n")
	}
	for _, v := range r.Env {
		name, value, _ := strings.Cut(v, "=")
		if shellName(name) {
			b.WriteString("export " + name + "=" + quote(value) + "\n")
		}
	}
	if r.Cwd != "" && !fresh {
		b.WriteString("cd -- " + quote(r.Cwd) + " || exit 126\n")
	}
	b.WriteString("trap '{ __dsec_save; } 2>/dev/null' EXIT\n")
	b.WriteString("eval \"${__dsec_opts-}\n\"" + quote(r.Script) + "\n")
	return b.String()
}

// quote makes s one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func shellName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// bashSave writes the state without a fork. The options come as a variable, so
// that they act on the user's script and not on what restores the rest.
var bashSave = `__dsec_save() {
local __dsec_so=$SHELLOPTS __dsec_v
builtin set +euxvfC
{ if [[ -v IFS ]]; then builtin declare -p IFS; else builtin echo 'unset IFS'; fi; } >&99
local IFS=' '
{
builtin printf 'cd -- %q\n' "$PWD"
builtin umask -p
for __dsec_v in "${!_@}" ` + prefixes() + `; do
case $__dsec_v in
__dsec_*|_|BASH|BASHOPTS|BASHPID|BASH_*|PPID|UID|EUID|SHELLOPTS|SHLVL|PWD|RANDOM|SRANDOM|SECONDS|LINENO|EPOCH*|FUNCNAME|GROUPS|DIRSTACK|PIPESTATUS|COMP_*|HISTCMD|OPT*|IFS) continue;;
esac
builtin declare -p -- "$__dsec_v"
done
builtin declare -f
builtin declare -Fx
builtin alias -p
builtin shopt -p
builtin printf '__dsec_opts='"'"
IFS=:
for __dsec_v in $__dsec_so; do
case $__dsec_v in
noexec|onecmd|privileged|history|emacs|vi|monitor|notify) continue;;
esac
builtin printf 'set -o %s;' "$__dsec_v"
done
case :$__dsec_so: in *:braceexpand:*) ;; *) builtin printf 'set +B;';; esac
case :$__dsec_so: in *:hashall:*) ;; *) builtin printf 'set +h;';; esac
builtin printf "'"
builtin printf '\n#dsec-end\n'
} >&99
}
`

// prefixes lists all variable names by their first letter: expansions fork nothing.
func prefixes() string {
	var b strings.Builder
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" {
		b.WriteString(`"${!` + string(c) + `@}" `)
	}
	return b.String()
}

// shSave is the reduced form for a plain sh: cwd, variables, exports, options.
const shSave = `__dsec_save() {
__dsec_o=$(set +o)
set +euxvfC
{
set
export -p
printf 'cd -- "$PWD"\numask %s\n__dsec_opts="%s"\n#dsec-end\n' "$(umask)" "$__dsec_o"
} >/proc/self/fd/99
}
`
