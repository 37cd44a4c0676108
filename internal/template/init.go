package template

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dsec-platform/dsec/internal/layer"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// initStep runs one command over the layers so far and makes a layer of what it
// wrote. The result is cached by those layers, the environment and the command.
func (b *build) initStep(ctx context.Context, i int, cmd string) error {
	b.at = Progress{Stage: fmt.Sprintf("init %d/%d", i+1, len(b.req.Init))}
	b.say(cmd)
	env := b.config.env
	run := BuildRun{Argv: []string{"/bin/sh", "-c", cmd}, Env: env, Cwd: "/"}
	if err := b.runLayer(ctx, &run, "init: "+cmd, b.stepKey(cmd, env), false); err != nil {
		return failedStep(ctx, "init: "+cmd, err)
	}
	return nil
}

// root is the environment so far; key tells it from others of this build.
func (b *build) root(key string) runtime.Root {
	_, id, _ := strings.Cut(key, ":")
	root := runtime.Root{Template: b.req.Name + "@build-" + id[:12]}
	for _, in := range b.infos {
		root.Layers = append(root.Layers, runtime.Layer{Digest: in.Digest, Path: in.Path, EROFS: in.Format == layer.EROFS})
	}
	return root
}

// forever: the result of a step on the same layers stays right.
const forever = time.Duration(math.MaxInt64)

func (b *build) stepKey(cmd string, env []string) string {
	return b.key("init", env, cmd)
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:77], "") + "…"
	}
	return s
}

// lines hands a stream over line by line; what ends without a newline comes at
// flush, and a line without end comes in pieces.
type lines struct {
	emit func(string)
	buf  []byte
}

func (l *lines) Write(p []byte) (int, error) {
	for _, c := range p {
		if c == '\n' || c == '\r' || len(l.buf) >= 4096 {
			l.flush()
		}
		if c != '\n' && c != '\r' {
			l.buf = append(l.buf, c)
		}
	}
	return len(p), nil
}

func (l *lines) flush() {
	if len(l.buf) > 0 {
		l.emit(string(l.buf))
		l.buf = l.buf[:0]
	}
}
