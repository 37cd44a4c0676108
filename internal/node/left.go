package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Left tells for whom the boxes were made that a node which is gone left in a data directory: for which
// session, or for none ("": they waited in the pool), by the box's id. It changes nothing.
func Left(dataDir string) (map[string]string, error) {
	f, err := os.Open(filepath.Join(dataDir, journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "journal", "it cannot be read: %w", err)
	}
	defer f.Close()
	p, err := replay(f)
	if err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "journal", "it cannot be read: %w", err)
	}
	left := make(map[string]string, len(p.boxes))
	for id, b := range p.boxes {
		left[id] = b.meta.Session
	}
	return left, nil
}
