package native

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Freezer is a box whose writable root can be kept as a layer; native boxes are.
type Freezer interface {
	// FreezeUpper ends every process of the box and gives collect the host path of its
	// upper directory, in which ids are the container's. The path is valid during the call only.
	// The box must then be destroyed.
	FreezeUpper(ctx context.Context, collect func(upper string) error) error
}

var _ Freezer = (*box)(nil)

// FreezeUpper implements Freezer.
func (b *box) FreezeUpper(ctx context.Context, collect func(upper string) error) error {
	b.mu.Lock()
	store := b.store
	b.mu.Unlock()
	if store == nil || !store.IDs() {
		return errdefs.Userf(errdefs.Unsupported, "box "+b.id, "make it with a writable root", "it has no upper that could become a layer")
	}
	b.kill(ctx)
	select {
	case <-b.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	upper := filepath.Join("/proc/self/fd", strconv.Itoa(store.FD()), "u")
	if err := collect(upper); err != nil {
		return fmt.Errorf("box %s: %w", b.id, err)
	}
	return nil
}
