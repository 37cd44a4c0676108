package cli

import (
	"context"
	"fmt"

	"github.com/dsec-platform/dsec/internal/specwire"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// sayUnnetworked says on standard error that a session has no network at all, and what gives it one: names do not
// resolve in such a box and what it tries is recorded nowhere, so that an empty record would say the wrong thing. It tells whether it is so.
func (e *Env) sayUnnetworked(ctx context.Context, c *dsec.Client, id string) bool {
	if id == "" {
		return false
	}
	s, err := c.Session(id).Get(ctx)
	if err != nil {
		return false
	}
	network := specwire.FromNetwork(s.GetSpec().GetNetwork())
	if network.Opens() {
		return false
	}
	if !e.quiet {
		writeAll(e.Err, fmt.Sprintf(`session %s has no network: its egress_policy is deny, so no name resolves in it and no attempt is recorded.
  remedy: create it with what it may reach in its spec: {network: {egress_policy: whitelist, allowed_domains: [api.example.com]}} (docs/spec.md, network)
`, id))
	}
	return true
}
