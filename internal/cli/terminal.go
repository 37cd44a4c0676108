package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func toText(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// onTerminal runs a command on a terminal in the box and joins it with this
// one: raw mode, so that every key (Ctrl-C too) goes there, and its size.
func (e *Env) onTerminal(ctx context.Context, box starter, c dsec.Command) (*dsecv1.Result, error) {
	rows, cols := e.size()
	c.PTY, c.StdinStream = &dsec.Size{Rows: rows, Cols: cols}, true
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	if _, said := c.Env["TERM"]; !said {
		c.Env["TERM"] = termName()
	}
	p, err := box.start(context.WithoutCancel(ctx), c)
	if err != nil {
		return nil, err
	}
	return e.join(ctx, p)
}

func termName() string {
	if t := os.Getenv("TERM"); t != "" {
		return t
	}
	return "xterm-256color"
}

// join connects this terminal with a process until it ends.
func (e *Env) join(ctx context.Context, p process) (*dsecv1.Result, error) {
	rest := context.WithoutCancel(ctx)
	if fd, ok := tty(e.In); ok {
		old, err := term.MakeRaw(fd)
		if err != nil {
			return nil, err
		}
		defer func() { _ = term.Restore(fd, old) }()
	}
	stop := e.watchSize(rest, p)
	defer stop()
	feed(rest, e.In, p)
	return follow(ctx, p, e.Out, e.Err)
}

// size of this terminal, or what is usual.
func (e *Env) size() (rows, cols uint16) {
	if fd, ok := tty(e.Out); ok {
		if w, h, err := term.GetSize(fd); err == nil && w > 0 && h > 0 {
			return uint16(h), uint16(w)
		}
	}
	return 24, 80
}

// watchSize passes every change of this terminal's size on.
func (e *Env) watchSize(ctx context.Context, p process) (stop func()) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changes:
				rows, cols := e.size()
				_ = p.resize(ctx, rows, cols) // the command may just have ended
			}
		}
	}()
	return func() {
		signal.Stop(changes)
		cancel(errors.New("the command ended"))
	}
}
