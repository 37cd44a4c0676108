package api

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// domainCommand checks a command and gives the guest's request; made tells that
// its op id is new. It is on the hot path: no reflection, no second pass over data.
func domainCommand(q *dsecv1.Command) (req guestproto.ExecRequest, made bool, err error) {
	req = guestproto.ExecRequest{
		Script: q.GetScript(), Shell: q.GetShell(), ShellSession: q.GetShellSession(), Cwd: q.GetCwd(), User: q.GetUser(), PTY: q.GetPty() != nil,
		TimeoutMs: q.GetTimeoutMs(), MaxOutput: q.GetMaxOutput(), KillOnOutputLimit: q.GetKillOnOutputLimit(), Background: q.GetBackground(),
	}
	if req.OpID, made, err = opID(q.GetOpId()); err != nil {
		return req, made, err
	}
	if err = commandText(&req, q); err != nil {
		return req, made, err
	}
	if err = commandInput(&req, q); err != nil {
		return req, made, err
	}
	if err = checkSize(&req); err != nil {
		return req, made, err
	}
	if req.PTY {
		if req.Rows, req.Cols, err = ptySize("command.pty", q.GetPty()); err != nil {
			return req, made, err
		}
	}
	if err = checkUser("command.user", req.User); err != nil {
		return req, made, err
	}
	if err = checkTimeout("command.timeout_ms", req.TimeoutMs); err != nil {
		return req, made, err
	}
	if req.MaxOutput < 0 || req.MaxOutput > maxOutput {
		return req, made, bad("command.max_output", "use 1 byte to 64 MiB, or 0 for 1 MiB", "is %d", req.MaxOutput)
	}
	return req, made, checkShellSession("command.shell_session", req.ShellSession, false)
}

// commandText takes what is run: exactly one of argv and script, in either form.
func commandText(req *guestproto.ExecRequest, q *dsecv1.Command) error {
	req.Argv = q.GetArgv()
	if raw := q.GetArgvBytes(); len(raw) > 0 {
		if len(req.Argv) > 0 {
			return bad("command.argv", "give argv or argv_bytes", "is given twice")
		}
		req.Argv = make([]string, len(raw))
		for i, a := range raw {
			req.Argv[i] = string(a)
		}
	}
	if raw := q.GetScriptBytes(); len(raw) > 0 {
		if req.Script != "" {
			return bad("command.script", "give script or script_bytes", "is given twice")
		}
		req.Script = string(raw)
	}
	switch {
	case len(req.Argv) == 0 && req.Script == "":
		return bad("command", `give argv, such as ["ls", "-l"], or script`, "says nothing to run")
	case len(req.Argv) > 0 && req.Script != "":
		return bad("command", "give argv or script", "has both argv and script")
	case req.ShellSession != "" && req.Script == "":
		return bad("command.shell_session", "give script", "needs a script")
	case len(req.Argv) > 0 && req.Argv[0] == "":
		return bad("command.argv[0]", "name a program", "is empty")
	case req.Shell != "" && req.Script == "":
		return bad("command.shell", "give script", "needs a script")
	}
	for i, a := range req.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			return bad("command.argv["+strconv.Itoa(i)+"]", "remove it", "holds a NUL byte")
		}
	}
	if strings.IndexByte(req.Script, 0) >= 0 || strings.IndexByte(req.Shell, 0) >= 0 {
		return bad("command.script", "remove it, or put binary data into a file", "holds a NUL byte")
	}
	return nil
}

// checkSize bounds what goes to the guest in one frame.
func checkSize(req *guestproto.ExecRequest) error {
	size := len(req.Script)
	for _, a := range req.Argv {
		size += len(a) + 1
	}
	for _, e := range req.Env {
		size += len(e) + 1
	}
	if size > maxText {
		return errdefs.Limitf(errdefs.TooLarge, "field command", "put it into a file and run that", "has %d bytes of arguments, script and environment, over %d", size, maxText)
	}
	return nil
}

// commandInput takes environment, working directory and standard input.
func commandInput(req *guestproto.ExecRequest, q *dsecv1.Command) error {
	if env := q.GetEnv(); len(env) > 0 {
		if err := checkEnv("command.env", env, maxEnvBytes); err != nil {
			return err
		}
		// Sorted, so that a repeated request has the same digest.
		for _, k := range slices.Sorted(maps.Keys(env)) {
			req.Env = append(req.Env, k+"="+env[k])
		}
	}
	if raw := q.GetEnvBytes(); len(raw) > 0 {
		if len(req.Env) > 0 {
			return bad("command.env", "give env or env_bytes", "is given twice")
		}
		for _, kv := range raw {
			k, v, ok := strings.Cut(string(kv), "=")
			if !ok {
				return bad("command.env_bytes", `write "NAME=value"`, "holds a string without '='")
			}
			if err := checkVar("command.env_bytes", k, v); err != nil {
				return err
			}
			req.Env = append(req.Env, string(kv))
		}
	}
	if req.Cwd != "" || len(q.GetCwdBytes()) > 0 {
		var err error
		if req.Cwd, err = checkPath("command.cwd", req.Cwd, q.GetCwdBytes()); err != nil {
			return err
		}
	}
	switch {
	case q.GetStdinStream() && len(q.GetStdin()) > 0:
		return bad("command.stdin", "give stdin, or stdin_stream and WriteStdin", "excludes stdin_stream")
	case len(q.GetStdin()) > maxStdinData:
		return errdefs.Limitf(errdefs.TooLarge, "field command.stdin", "use stdin_stream, or put the data into a file", "has %d bytes, over %d", len(q.GetStdin()), maxStdinData)
	case q.GetStdinStream():
		req.StdinMode = guestproto.StdinStream
	case len(q.GetStdin()) > 0:
		req.StdinMode, req.Stdin = guestproto.StdinData, q.GetStdin()
	}
	return nil
}

func ptySize(field string, p *dsecv1.Pty) (rows, cols uint16, err error) {
	if p.GetRows() > 4096 || p.GetCols() > 4096 {
		return 0, 0, bad(field, "use at most 4096 rows and columns", "is %d by %d", p.GetRows(), p.GetCols())
	}
	rows, cols = uint16(p.GetRows()), uint16(p.GetCols())
	if rows == 0 {
		rows = 24
	}
	if cols == 0 {
		cols = 80
	}
	return rows, cols, nil
}

func checkShellSession(field, name string, needed bool) error {
	ok := len(name) <= 64 && (name != "" || !needed)
	for i := 0; i < len(name) && ok; i++ {
		ok = isWord(name[i])
	}
	if !ok {
		return bad(field, "use 1 to 64 characters [A-Za-z0-9_-]", "%q is not a shell session's name", clip(name))
	}
	return nil
}

// signalName takes "SIGTERM", "term" or "15" and gives "SIGTERM".
func signalName(given string) (string, error) {
	name := strings.ToUpper(given)
	if n, err := strconv.Atoi(name); err == nil {
		name = unix.SignalName(unix.Signal(n))
	} else if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if name == "" || unix.SignalNum(name) == 0 {
		return "", bad("signal", "use a name such as SIGTERM or its number", "%q is not a signal", clip(given))
	}
	return name, nil
}
