package layer

import (
	"context"
	"os"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Open gives a layer's root directory for reading, whatever its format.
func (in Info) Open() (*os.File, error) {
	if in.Format == EROFS {
		return MountEROFS(in.Path)
	}
	return os.Open(in.Path)
}

// Verify reads a layer again and compares it with its digest.
func (s *Store) Verify(ctx context.Context, digest string) error {
	in, err := s.Get(digest)
	if err != nil {
		return err
	}
	f, err := in.Open()
	if err != nil {
		return errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "layer "+digest, "cannot be opened: %w", err)
	}
	defer f.Close()
	sum, err := sumTree(ctx, f, nil)
	if err != nil {
		return err
	}
	if sum.digest != digest {
		e := errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "layer "+digest, "its content on disk is another one (%s)", sum.digest)
		e.Retryable, e.Remedy = false, "remove the templates that use it and import them again"
		return e
	}
	return nil
}
