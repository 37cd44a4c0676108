package dsec

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
)

// Command is what to run in a session: Argv, or a Script for a shell. Strings
// are bytes and need not be UTF-8.
type Command struct {
	// OpID names the operation; a repeated call with the same id and command gives
	// the same result without running again. Empty: the client makes one.
	OpID   string
	Argv   []string
	Script string
	Shell  string // of Script; default /bin/bash, else /bin/sh
	// ShellSession keeps working directory, environment, variables, functions and
	// options between the scripts that name it.
	ShellSession string
	Env          map[string]string
	Cwd          string
	User         string
	Stdin        []byte
	StdinStream  bool // fed by Process.Stdin
	PTY          *Size
	// Timeout kills the whole process tree; zero: none.
	Timeout time.Duration
	// MaxOutput bytes of each stream are kept, half head and half tail; zero: 1 MiB.
	MaxOutput         int64
	KillOnOutputLimit bool
	// Background answers when the command has started.
	Background bool
}

// Size of a terminal.
type Size struct{ Rows, Cols uint16 }

// Run runs a command and answers when it has ended. A command that ran and
// failed is not an error: see the result's exit_code and signal.
func (s *Session) Run(ctx context.Context, cmd Command) (*Result, error) {
	r, err := call(ctx, s.c, true, s.c.Execs.Run, &dsecv1.RunRequest{SessionId: s.id, Command: cmd.message()})
	return r.GetResult(), err
}

// Sh runs a script.
func (s *Session) Sh(ctx context.Context, script string) (*Result, error) {
	return s.Run(ctx, Command{Script: script})
}

// Ops lists the operations that the session's box remembers.
func (s *Session) Ops(ctx context.Context) ([]*Operation, error) {
	r, err := call(ctx, s.c, true, s.c.Execs.ListOps, &dsecv1.ListOpsRequest{SessionId: s.id})
	return r.GetOperations(), err
}

// Op gives one operation; with wait when it has ended, with its output.
func (s *Session) Op(ctx context.Context, opID string, wait bool) (*Operation, error) {
	r, err := call(ctx, s.c, true, s.c.Execs.GetOp, &dsecv1.GetOpRequest{SessionId: s.id, OpId: opID, Wait: wait})
	return r.GetOperation(), err
}

// Signal sends a signal ("SIGTERM") to an operation's process group, or with tree
// to every process of it.
func (s *Session) Signal(ctx context.Context, opID, signal string, tree bool) error {
	_, err := call(ctx, s.c, false, s.c.Execs.Signal, &dsecv1.SignalRequest{SessionId: s.id, OpId: opID, Signal: signal, Tree: tree})
	return err
}

// CloseShell ends a shell session and forgets its state.
func (s *Session) CloseShell(ctx context.Context, shellSession string) error {
	_, err := call(ctx, s.c, true, s.c.Execs.CloseShell, &dsecv1.CloseShellRequest{SessionId: s.id, ShellSession: shellSession})
	return err
}

// Output gives what was kept of a stream; where bytes were dropped it says so in a line.
func Output(o *dsecv1.Output) []byte {
	if o.GetDropped() == 0 && len(o.GetTail()) == 0 {
		return o.GetHead()
	}
	b := append([]byte(nil), o.GetHead()...)
	if o.GetDropped() > 0 {
		b = fmt.Appendf(b, "\n[%d bytes dropped]\n", o.GetDropped())
	}
	return append(b, o.GetTail()...)
}

func (cmd *Command) message() *dsecv1.Command {
	m := &dsecv1.Command{
		OpId: cmd.OpID, Shell: cmd.Shell, ShellSession: cmd.ShellSession, User: cmd.User,
		Stdin: cmd.Stdin, StdinStream: cmd.StdinStream, TimeoutMs: ceilMs(cmd.Timeout),
		MaxOutput: cmd.MaxOutput, KillOnOutputLimit: cmd.KillOnOutputLimit, Background: cmd.Background,
	}
	if m.OpId == "" {
		m.OpId = newOpID()
	}
	if allUTF8(cmd.Argv) {
		m.Argv = cmd.Argv
	} else {
		for _, a := range cmd.Argv {
			m.ArgvBytes = append(m.ArgvBytes, []byte(a))
		}
	}
	m.Script, m.ScriptBytes = text(cmd.Script)
	m.Cwd, m.CwdBytes = text(cmd.Cwd)
	m.Env = cmd.Env
	for k, v := range cmd.Env {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			m.Env = nil
			for _, k := range slices.Sorted(maps.Keys(cmd.Env)) {
				m.EnvBytes = append(m.EnvBytes, []byte(k+"="+cmd.Env[k]))
			}
			break
		}
	}
	if cmd.PTY != nil {
		m.Pty = &dsecv1.Pty{Rows: uint32(cmd.PTY.Rows), Cols: uint32(cmd.PTY.Cols)}
	}
	return m
}

// text puts s into the field that can carry it.
func text(s string) (string, []byte) {
	if utf8.ValidString(s) {
		return s, nil
	}
	return "", []byte(s)
}

func allUTF8(ss []string) bool {
	for _, s := range ss {
		if !utf8.ValidString(s) {
			return false
		}
	}
	return true
}

// ceilMs never turns a short time into "none".
func ceilMs(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
