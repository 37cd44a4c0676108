package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/runtime/native"
)

// Ended counts the boxes that Down removed, by what they were.
type Ended struct {
	Sessions int `json:"sessions"` // of sessions
	Idle     int `json:"idle"`     // of the warm pool, which a stopped server leaves to the next
	Parts    int `json:"parts"`    // what a killed server had half made or half removed
}

// Boxes is how many they were.
func (e Ended) Boxes() int { return e.Sessions + e.Idle + e.Parts }

// String is a sentence about them.
func (e Ended) String() string {
	var parts []string
	for _, one := range []struct {
		n    int
		what string
	}{{e.Sessions, "of sessions"}, {e.Idle, "of the warm pool"}, {e.Parts, "half made or half removed"}} {
		if one.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	if len(parts) == 0 {
		return "no box was there; nothing is left"
	}
	return "boxes removed: " + strings.Join(parts, ", ") + "; nothing is left"
}

// Down destroys every box of a data directory that no server uses, with the
// spawner, and tells what it removed.
func Down(ctx context.Context, dataDir string) (ended Ended, err error) {
	release, err := Lock(dataDir)
	if err != nil {
		return ended, err
	}
	defer func() { err = errors.Join(err, release()) }()
	rt, err := native.New(native.Options{DataDir: dataDir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return ended, err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	// A journal that cannot be read keeps no box alive.
	known, _ := node.Left(dataDir)
	orphans, err := rt.Sweep(ctx, func(string) bool { return false })
	counted := map[string]bool{}
	for _, o := range orphans {
		if o.Err != nil {
			e := errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "box "+o.ID, "its %s %s cannot be removed: %w", o.Kind, o.What, o.Err)
			e.Remedy = "run dsec down again"
			err = errors.Join(err, e)
		}
		if !counted[o.ID] {
			counted[o.ID] = true
			ended.count(known, o.ID)
		}
	}
	return ended, err
}

func (e *Ended) count(known map[string]string, box string) {
	switch session, ok := known[box]; {
	case !ok:
		e.Parts++
	case session == "":
		e.Idle++
	default:
		e.Sessions++
	}
}
