package server

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime/native"
)

// Down destroys every box of a data directory that no server uses, with the
// spawner, and tells how many things it removed.
func Down(ctx context.Context, dataDir string) (removed int, err error) {
	release, err := Lock(dataDir)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, release()) }()
	rt, err := native.New(native.Options{DataDir: dataDir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	orphans, err := rt.Sweep(ctx, func(string) bool { return false })
	for _, o := range orphans {
		if o.Err != nil {
			e := errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+o.ID, "its %s %s cannot be removed: %w", o.Kind, o.What, o.Err)
			e.Remedy = "run dsec down again"
			err = errors.Join(err, e)
		}
	}
	return len(orphans), err
}
