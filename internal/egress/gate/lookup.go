package gate

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/egress/resolve"
)

// lookup asks the node's resolver; where it fails, what the preflight found still holds.
func (g *Gate) lookup(ctx context.Context, name string) (resolve.Answer, error) {
	g.mu.Lock()
	pre, ok := g.resolved[name]
	g.mu.Unlock()
	ans, err := g.Node.Resolver.Lookup(ctx, name)
	if errors.Is(err, resolve.ErrFailed) && ok {
		return resolve.Answer{Addrs: pre.Addrs, TTL: 30 * time.Second}, nil
	}
	return ans, err
}

func reasonOf(err error) policy.Reason {
	if errors.Is(err, resolve.ErrNoName) {
		return policy.NoSuchName
	}
	return policy.ResolverFailed
}

// printable keeps a record readable whatever bytes a name has.
func printable(name string) string {
	if len(name) > 255 {
		name = name[:255]
	}
	q := strconv.QuoteToASCII(name)
	return q[1 : len(q)-1]
}
