package control

import (
	"context"
	"slices"

	"github.com/dsec-platform/dsec/internal/egress/boxenv"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/node"
	"github.com/dsec-platform/dsec/internal/runtime"
	"github.com/dsec-platform/dsec/internal/session"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/template"
)

// Networks compiles what sessions may reach. Nil results let nothing out.
type Networks interface {
	Compile(project string, t *template.Template, root runtime.Root, n *spec.Network) (*policy.Phases, error)
	// Trusted gives what makes a box of a project trust its authority: files and variables. There are none for a box that has no
	// network, unless its project has a credential, which a later policy may name.
	Trusted(project string, root runtime.Root, networked, writable bool) ([]runtime.DataMount, []string, error)
}

// Network acts on the way out of sessions. *Control implements it.
type Network interface {
	// SwitchNetwork puts a phase of the session's network in force ("": the policy outside of the phases), or
	// another network in place of it. When it returns, what the new policy does not allow is cut.
	SwitchNetwork(ctx context.Context, project, id, phase string, network *spec.Network) (node.NetworkState, error)
	// CheckNetwork says what would be decided about a destination now.
	CheckNetwork(ctx context.Context, project, id, host string, port uint16, transport policy.Protocol) (policy.Result, error)
}

var _ Network = (*Control)(nil)

// compileNetwork checks a network against its template and its project's bound.
func (c *Control) compileNetwork(project string, root *root, n *spec.Network) (*policy.Phases, error) {
	if c.cfg.Networks != nil {
		return c.cfg.Networks.Compile(project, root.template, root.runtime, n)
	}
	if n.Opens() {
		return nil, errdefs.Userf(errdefs.Unsupported, "field network.egress_policy", "use egress_policy: deny", "this server lets no box out")
	}
	return nil, nil
}

// surround makes of a template and a request what a box is made with. The code is not in it.
func (c *Control) surround(project string, root *root, req *CreateRequest) (payload, error) {
	p := payload{codeDir: req.CodeDir, shared: &node.Shared{}}
	var err error
	if p.network, err = c.compileNetwork(project, root, &req.Spec.Network); err != nil {
		return p, err
	}
	var base []string
	if p.network != nil {
		base = boxenv.Impatient()
	}
	base = append(base, root.template.Env...)
	if p.network != nil && c.cfg.Proxy != "" {
		if err := node.Proxyable(p.network); err != nil {
			return p, err
		}
		base = append(base, boxenv.Proxy(c.cfg.Proxy)...)
	}
	if c.cfg.Networks != nil {
		mounts, trust, err := c.cfg.Networks.Trusted(project, root.runtime, p.network != nil, !req.Spec.ReadOnlyRoot())
		if err != nil {
			return p, err
		}
		// A box is shown what its owner mounts there instead.
		covered := func(m runtime.DataMount) bool {
			return slices.ContainsFunc(req.Spec.FS.Mounts, func(own spec.DataMount) bool { return below(m.Target, []string{own.Target}) })
		}
		if !slices.ContainsFunc(mounts, covered) {
			p.mounts, p.trusts, base = mounts, len(mounts) > 0, append(base, trust...)
		}
	}
	p.env = environment(base, req)
	return p, nil
}

func preflightOf(n *spec.Network) node.Preflight {
	switch n.Preflight {
	case spec.PreflightReach:
		return node.PreflightReach
	case spec.PreflightOff:
		return node.PreflightOff
	}
	return node.PreflightResolve
}

// SwitchNetwork implements Network.
func (c *Control) SwitchNetwork(ctx context.Context, project, id, phase string, network *spec.Network) (node.NetworkState, error) {
	l, s, err := c.lookup(ctx, project, id)
	if err != nil {
		return node.NetworkState{}, err
	}
	if l == nil {
		return node.NetworkState{}, ended(s)
	}
	if err := l.lock(ctx); err != nil {
		return node.NetworkState{}, err
	}
	defer l.unlock()
	row := l.current()
	switch {
	case row.Phase.Terminal() || row.Ending():
		return node.NetworkState{}, ended(view(&l.rec, row))
	case !row.Phase.AtLeast(session.Running):
		e := errdefs.Userf(errdefs.Conflict, "session "+id, "wait until it is RUNNING", "it has no box yet: it is %s", row.Phase)
		e.Retryable = true
		return node.NetworkState{}, e
	}
	change := node.NetworkChange{Phase: phase}
	if network != nil {
		if l.root == nil {
			return node.NetworkState{}, errdefs.Userf(errdefs.Conflict, "session "+id, "make a new session", "its template is gone, against which the network would be checked")
		}
		if change.Network, err = c.compileNetwork(project, l.root, network); err != nil {
			return node.NetworkState{}, err
		}
		if change.Network == nil { // it lets nothing out
			if change.Network, err = network.Compile(policy.Options{}); err != nil {
				return node.NetworkState{}, err
			}
		}
	}
	// What is begun is brought to its end.
	ctx = context.WithoutCancel(ctx)
	state, err := c.node.SwitchNetwork(ctx, id, change)
	if err != nil || network == nil {
		return state, err
	}
	kept := *network
	l.network.Store(&kept)
	return state, c.store.SetNetwork(ctx, id, network)
}

// CheckNetwork implements Network.
func (c *Control) CheckNetwork(ctx context.Context, project, id, host string, port uint16, transport policy.Protocol) (policy.Result, error) {
	l, s, err := c.lookup(ctx, project, id)
	if err != nil {
		return policy.Result{}, err
	}
	if l == nil {
		return policy.Result{}, ended(s)
	}
	return c.node.CheckNetwork(ctx, id, host, port, transport)
}
