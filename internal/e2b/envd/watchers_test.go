package envd

import (
	"context"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// endless tells of changes with long names for as long as it is asked.
type endless struct {
	guestclient.Watcher
	told int
}

func (e *endless) Recv() (guestproto.WatchEvent, error) {
	e.told++
	return guestproto.WatchEvent{Kind: "create", Path: strings.Repeat("x", 4000)}, nil
}

// What nobody fetches is bounded by its bytes too: a box chooses the names.
func TestWatcherKeepsFewBytes(t *testing.T) {
	names := &endless{}
	w := &watcher{}
	w.collect(context.Background(), &watch{Watcher: names, dir: "/tmp"})
	if kept := names.told * 4000; kept > maxEventBytes+8000 || kept < maxEventBytes/2 {
		t.Errorf("%d bytes were taken, %d are kept", kept, maxEventBytes)
	}
	if events, err := w.take(); err != nil || len(events) != names.told-1 {
		t.Errorf("%d events, %v", len(events), err)
	}
	if _, err := w.take(); err == nil || errdefs.From(err).Reason != errdefs.RateLimited {
		t.Errorf("afterwards: %v", err)
	}
}
