package node

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/runtime/fake"
	"github.com/dsec-platform/dsec/internal/spec"
)

// A template whose box does not start is tried ever more seldom, and said once.
func TestHopelessTemplateIsSaidOnce(t *testing.T) {
	var log logBuffer
	virtual(t, func(r *rig) {
		var tries atomic.Int64
		broken := fake.Hooks{Create: func(context.Context, runtime.Config) error {
			tries.Add(1)
			return errdefs.Infraf(errdefs.ScopeBox, errdefs.Internal, "box", "its init does not start")
		}}
		r.rt.SetHooks(broken)
		if err := r.node.Warm("", runtime.Root{Template: "broken@1"}, false); err != nil {
			r.t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := tries.Load(); n < 10 || n > 25 {
			r.t.Errorf("%d tries in an hour", n)
		}
		if n := log.count("the pool cannot be filled"); n != 1 {
			r.t.Errorf("said %d times", n)
		}
		r.rt.SetHooks(fake.Hooks{})
		time.Sleep(maxHopeless + time.Minute)
		synctest.Wait()
		if r.pooled() != 1 {
			r.t.Errorf("%d boxes when it can be made again", r.pooled())
		}
	}, withPool(spec.Pool{MinIdle: 1, MaxIdle: 1}), func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), what)
}
