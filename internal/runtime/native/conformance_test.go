package native

import (
	"errors"
	"log/slog"

	"testing"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/runtimetest"
)

// killable lets the suite end a PID 1 from outside.
type killable struct{ *Runtime }

func (k killable) KillGuest(id string) error {
	k.mu.Lock()
	b := k.boxes[id]
	k.mu.Unlock()
	if b == nil {
		return errors.New("no such box")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return unix.PidfdSendSignal(b.pidfd, unix.SIGKILL, nil, 0)
}

func TestConformance(t *testing.T) {
	if why := cannotRun(); why != "" {
		t.Skip(why)
	}
	root := busyboxRoot(t)
	runtimetest.Run(t, func(t *testing.T, dir string) (runtime.Runtime, runtime.Root) {
		testDirs[dir] = true
		r, err := New(Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return killable{r}, root
	})
}
