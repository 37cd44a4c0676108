package mcp

import (
	"context"
	"crypto/rand"
	"strings"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// Output of a command is read by a model: little is kept of each stream unless more is asked for.
const (
	defaultOutput  = 32 << 10
	maxOutput      = 1 << 20
	defaultTimeout = 2 * time.Minute
)

type execIn struct {
	Session   string            `json:"session" jsonschema:"id of the session"`
	Script    string            `json:"script,omitempty" jsonschema:"text for a shell; give this or argv"`
	Argv      []string          `json:"argv,omitempty" jsonschema:"program and arguments, run without a shell"`
	Shell     string            `json:"shell,omitempty" jsonschema:"name of a shell that keeps its state between scripts"`
	Cwd       string            `json:"cwd,omitempty" jsonschema:"working directory; default /workspace or the home"`
	Env       map[string]string `json:"env,omitempty" jsonschema:"further environment variables"`
	User      string            `json:"user,omitempty" jsonschema:"who it runs as, such as root; default the session's user"`
	Stdin     string            `json:"stdin,omitempty" jsonschema:"what it reads from standard input"`
	Timeout   float64           `json:"timeout_seconds,omitempty" jsonschema:"kill it after this time; default 120"`
	MaxOutput int64             `json:"max_output,omitempty" jsonschema:"bytes to keep of each stream; default 32768, at most 1048576"`
}

type execOut struct {
	failure
	ExitCode  *int32  `json:"exit_code,omitempty" jsonschema:"0 is success; -1 when a signal ended it"`
	Signal    string  `json:"signal,omitempty" jsonschema:"the signal that ended it"`
	TimedOut  bool    `json:"timed_out,omitempty" jsonschema:"it was killed by its time-out"`
	OOM       bool    `json:"oom,omitempty" jsonschema:"it was killed for want of memory"`
	Limit     string  `json:"limit,omitempty" jsonschema:"the box's limit that it ran into: memory, pids, disk or output"`
	Stdout    string  `json:"stdout,omitempty"`
	Stderr    string  `json:"stderr,omitempty"`
	Dropped   int64   `json:"dropped_bytes,omitempty" jsonschema:"bytes left out of the middle of both streams"`
	Survivors int32   `json:"background_processes,omitempty" jsonschema:"processes of it that live on"`
	WallMs    float64 `json:"wall_ms,omitempty"`
	OpID      string  `json:"op_id,omitempty" jsonschema:"id of the operation"`
}

func (s *Server) exec(ctx context.Context, cn *connection, in execIn) (execOut, error) {
	c, err := in.command()
	if err != nil {
		return execOut{}, err
	}
	session := cn.c.Session(in.Session)
	r, err := session.Run(ctx, c)
	if err != nil && ctx.Err() != nil {
		// Nobody waits for it any more, and a lost connection alone does not end a command.
		kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		if kerr := session.Signal(kill, c.OpID, "SIGKILL", true); kerr != nil {
			s.o.Log.Debug("a cancelled command was not killed", "session", in.Session, "op", c.OpID, "err", kerr)
		}
	}
	if err == nil && r.GetError() != nil {
		err = dsec.FromWire(r.GetError())
	}
	if err != nil {
		return execOut{}, err
	}
	code := r.GetExitCode()
	return execOut{
		ExitCode: &code, Signal: r.GetSignal(), TimedOut: r.GetTimedOut(), OOM: r.GetOom(), Limit: r.GetLimit(),
		Stdout: text(dsec.Output(r.GetStdout())), Stderr: text(dsec.Output(r.GetStderr())),
		Dropped:   r.GetStdout().GetDropped() + r.GetStderr().GetDropped(),
		Survivors: r.GetSurvivors(), WallMs: r.GetWallMs(), OpID: r.GetOpId(),
	}, nil
}

func (in *execIn) command() (dsec.Command, error) {
	c := dsec.Command{
		OpID: rand.Text(), Script: in.Script, Argv: in.Argv, ShellSession: in.Shell, Cwd: in.Cwd, Env: in.Env, User: in.User,
		Stdin: []byte(in.Stdin), Timeout: defaultTimeout, MaxOutput: defaultOutput,
	}
	switch {
	case (in.Script == "") == (len(in.Argv) == 0):
		return c, invalid("script", "there must be one of script and argv", "give the text for a shell as script")
	case in.Shell != "" && in.Script == "":
		return c, invalid("shell", "a shell takes a script", "give the text as script")
	case in.Timeout < 0 || in.Timeout > 7*24*3600:
		return c, invalid("timeout_seconds", "it is out of range", "give 0.001 to 604800 seconds")
	case in.MaxOutput < 0 || in.MaxOutput > maxOutput:
		return c, invalid("max_output", "it is out of range", "give 1 to 1048576 bytes; write more into a file and read that in parts")
	}
	if in.Timeout > 0 {
		c.Timeout = max(time.Duration(in.Timeout*float64(time.Second)), time.Millisecond)
	}
	if in.MaxOutput > 0 {
		c.MaxOutput = in.MaxOutput
	}
	return c, nil
}

func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
