package rollout

import (
	"context"
	"strings"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// Platform makes sessions. Server is the real one.
type Platform interface {
	Create(ctx context.Context, o dsec.CreateOptions) (Session, error)
	// StopAll ends every session with the label; it is called at most once, at the end.
	StopAll(ctx context.Context, label, value string) error
}

// Session is what a rollout does to one. Errors are *dsec.Error.
type Session interface {
	ID() string
	Write(ctx context.Context, path, content string, mode uint32) error
	Run(ctx context.Context, c dsec.Command) (*dsec.Result, error)
	Stop(ctx context.Context) error
}

// Server is the platform behind a client.
type Server struct{ Client *dsec.Client }

var _ Platform = Server{}

// Create makes a session and waits until it is RUNNING.
func (s Server) Create(ctx context.Context, o dsec.CreateOptions) (Session, error) {
	sess, err := s.Client.Create(ctx, o)
	if err != nil {
		return nil, err
	}
	return session{sess}, nil
}

// StopAll ends what is left of a run.
func (s Server) StopAll(ctx context.Context, label, value string) error {
	_, err := s.Client.Stop(ctx, dsec.ByLabels(map[string]string{label: value}), "the rollout has ended")
	return err
}

type session struct{ s *dsec.Session }

func (s session) ID() string { return s.s.ID() }

func (s session) Write(ctx context.Context, path, content string, mode uint32) error {
	_, err := s.s.WriteFile(ctx, path, strings.NewReader(content), dsec.WriteOptions{Mode: mode, Parents: true})
	return err
}

func (s session) Run(ctx context.Context, c dsec.Command) (*dsec.Result, error) {
	return s.s.Run(ctx, c)
}

func (s session) Stop(ctx context.Context) error { return s.s.Stop(ctx, "the episode has ended") }

// command turns a step's parts into the API's.
func command(cwd string, h How, argv []string, script, shellSession string) dsec.Command {
	c := dsec.Command{
		Argv: argv, Script: script, ShellSession: shellSession, Env: h.Env, User: h.User, Cwd: cwd,
		Timeout: time.Duration(h.TimeoutMs) * time.Millisecond,
	}
	if h.Cwd != "" {
		c.Cwd = h.Cwd
	}
	if shellSession != "" && h.Cwd == "" {
		c.Cwd = "" // the session keeps its own
	}
	if h.Stdin != "" {
		c.Stdin = []byte(h.Stdin)
	}
	return c
}
