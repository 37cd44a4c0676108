// Package ctxread ends reading with a context.
package ctxread

import (
	"context"
	"io"
)

// Reader gives r until ctx has ended, and then ctx's error. A Read that is under way is not
// broken off: it is for what goes on for long, not for what hangs.
func Reader(ctx context.Context, r io.Reader) io.Reader { return reader{ctx, r} }

type reader struct {
	ctx context.Context
	r   io.Reader
}

func (c reader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
