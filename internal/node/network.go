package node

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/runtime"
)

// NetworkState is what is in force of a session's network.
type NetworkState struct {
	Phase string // empty: the policy outside of the phases
	Mode  policy.Mode
	Stats egress.Stats
}

// network is a box's way out.
type network struct {
	mu     sync.Mutex // one switch at a time; guards all
	phases *policy.Phases
	phase  string
	link   egress.Link // nil: nothing has been let out yet
	closed bool
	// proxied: it goes by an explicit proxy, as the node did when the network was opened.
	proxied bool
	// broken is why an adopted box has none.
	broken error
}

// networkMeta is the journal's form of a network. It has no secrets: credentials are named only.
type networkMeta struct {
	Phases json.RawMessage `json:"phases"`
	Phase  string          `json:"phase,omitempty"`
	// Proxied stays for the life of the box: its programs were told of a proxy, or were not.
	Proxied bool `json:"proxied,omitempty"`
}

func metaOf(phases *policy.Phases, phase string, proxied bool) (*networkMeta, error) {
	if phases == nil {
		return nil, nil
	}
	b, err := encodePhases(phases)
	if err != nil {
		return nil, err
	}
	return &networkMeta{Phases: b, Phase: phase, Proxied: proxied}, nil
}

func encodePhases(phases *policy.Phases) (json.RawMessage, error) {
	b, err := json.Marshal(phases)
	if err != nil {
		return nil, errdefs.Infraf(errdefs.ScopeNode, errdefs.Internal, "network", "%w", err)
	}
	return b, nil
}

// preflight looks at the names of the first policy while the box is made. The result is asked for once;
// a create that fails before asks for it all the same.
func (n *Node) preflight(ctx context.Context, req *CreateRequest) func() ([]egress.Preflight, error) {
	if req.Network == nil || !req.Network.Needed() || n.cfg.Egress == nil || req.Preflight == PreflightOff {
		return func() ([]egress.Preflight, error) { return nil, nil }
	}
	l := req.Shared.join(n, func(ctx context.Context) ([]egress.Preflight, error) {
		return n.cfg.Egress.Preflight(ctx, req.Network.First(), req.Preflight == PreflightReach)
	})
	// Whoever is not waited for any more does not keep it going.
	left := context.AfterFunc(ctx, func() { req.Shared.leave(l) })
	return func() ([]egress.Preflight, error) {
		select {
		case <-l.done:
		case <-ctx.Done():
		}
		if left() {
			req.Shared.leave(l)
		}
		if !over(l.done) {
			return nil, errdefs.From(ctx.Err())
		}
		return l.found, l.err
	}
}

// openNetwork gives the session's box its way out.
func (n *Node) openNetwork(ctx context.Context, s *session, req *CreateRequest, bound *Bound, preflight func() ([]egress.Preflight, error)) error {
	if req.Network == nil {
		return nil
	}
	_, b := s.current()
	lap := time.Now()
	found, err := preflight()
	if err == nil {
		err = n.attachNetwork(ctx, b, req.Network, req.Network.First().Phase(), egress.Attachment{Resolved: found, Proxied: n.cfg.Proxied})
	}
	bound.Timing["network"] = time.Since(lap)
	return err
}

// Proxyable tells why boxes that have a proxy in place of a device cannot have a network.
func Proxyable(phases *policy.Phases) error {
	if rule := phases.Datagrams(); rule != "" {
		return errdefs.Userf(errdefs.Unsupported, "field network", "name TCP, TLS or HTTP alone", "the box goes by a proxy, which carries no UDP: %s", rule)
	}
	return nil
}

// attachNetwork starts to serve the box under the policy of a phase.
func (n *Node) attachNetwork(ctx context.Context, b *box, phases *policy.Phases, phase string, a egress.Attachment) error {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.net.phases, b.net.phase, b.net.proxied = phases, phase, a.Proxied
	if !phases.Needed() {
		return nil
	}
	p, err := phases.Phase(phase)
	if err != nil {
		return err
	}
	return n.link(ctx, b, p, a)
}

// link makes the box's link. b.net.mu is held.
func (n *Node) link(ctx context.Context, b *box, p *policy.Policy, a egress.Attachment) error {
	if b.net.closed {
		return errdefs.Policyf(errdefs.BoxGone, "box "+b.id, "make a new session", "it is being removed")
	}
	if n.cfg.Egress == nil {
		return noEgress("this node lets no box out")
	}
	r, ok := b.runtimeBox().(runtime.Networked)
	if !ok {
		return noEgress("the runtime of this box has no network namespace to serve")
	}
	b.mu.Lock()
	m := b.meta
	b.mu.Unlock()
	a.Box = egress.Identity{Box: b.id, Session: m.Session, Project: m.Project, Op: b.ops.only}
	a.Netns, a.Policy, a.Trusts = r.Netns, p, m.Trusts
	link, err := n.cfg.Egress.Attach(ctx, a)
	if err != nil {
		return errdefs.From(err)
	}
	b.net.link, b.net.broken = link, nil
	return nil
}

func noEgress(why string) error {
	return errdefs.Userf(errdefs.Unsupported, "field network.egress_policy", "use egress_policy: deny", "%s", why)
}

// resumeNetwork takes over the way out of a box that was adopted. Where that fails the box has
// none until its policy is switched: what it asks for fails, and nothing hangs. CheckNetwork says why.
func (n *Node) resumeNetwork(ctx context.Context, b *box, m *networkMeta) {
	phases, err := policy.LoadPhases(m.Phases)
	if err == nil {
		err = n.attachNetwork(ctx, b, phases, m.Phase, egress.Attachment{Resume: true, Proxied: m.Proxied})
	}
	if err != nil {
		b.net.mu.Lock()
		b.net.broken = errdefs.From(err)
		b.net.mu.Unlock()
		n.log.Error("the network of an adopted box could not be taken over; it has none now", "box", b.id, "err", err)
	}
}

// closeNetwork lets go of the box's namespace, which would outlive the box else.
func (b *box) closeNetwork() {
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	b.net.closed = true
	if b.net.link != nil {
		_ = b.net.link.Close(false)
		b.net.link = nil
	}
}

// SwitchNetwork implements API.
func (n *Node) SwitchNetwork(ctx context.Context, session string, change NetworkChange) (NetworkState, error) {
	if err := n.enter(); err != nil {
		return NetworkState{}, err
	}
	defer n.wg.Done()
	s := n.session(session)
	if s == nil {
		return NetworkState{}, unknown(session)
	}
	state, b := s.current()
	if b == nil || state != Live && state != Suspended {
		return NetworkState{}, unfit(s, state)
	}
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	phases, phase := b.net.phases, change.Phase
	if change.Network != nil {
		phases, phase = change.Network, change.Network.First().Phase()
	}
	if phases == nil {
		return NetworkState{}, errdefs.Userf(errdefs.NotFound, "phase "+phase, "give a whole network instead", "the session's network has no phases")
	}
	p, err := phases.Phase(phase)
	if err != nil {
		return NetworkState{}, err
	}
	proxied := b.net.proxied
	if b.net.phases == nil {
		proxied = n.cfg.Proxied
	}
	if proxied {
		if err := Proxyable(phases); err != nil {
			return NetworkState{}, err
		}
	}
	m, err := metaOf(phases, phase, proxied)
	if err != nil {
		return NetworkState{}, err
	}
	// Journaled first: after a crash in between, the new policy is in force a little earlier than said.
	if err := n.journal.append(&record{Kind: recNetwork, Box: b.id, Network: m}); err != nil {
		return NetworkState{}, err
	}
	switch {
	case b.net.link != nil:
		err = b.net.link.Switch(ctx, p)
	case !p.Closed():
		err = n.link(ctx, b, p, egress.Attachment{Proxied: proxied})
	}
	if err != nil {
		if old, merr := metaOf(b.net.phases, b.net.phase, b.net.proxied); merr == nil {
			n.note(&record{Kind: recNetwork, Box: b.id, Network: old})
		}
		return NetworkState{}, errdefs.From(err)
	}
	b.net.phases, b.net.phase, b.net.proxied = phases, phase, proxied
	b.mu.Lock()
	b.meta.Network = m
	b.mu.Unlock()
	return b.net.state(), nil
}

// CheckNetwork implements API.
func (n *Node) CheckNetwork(_ context.Context, session, host string, port uint16, transport policy.Protocol) (policy.Result, error) {
	s := n.session(session)
	if s == nil {
		return policy.Result{}, unknown(session)
	}
	state, b := s.current()
	if b == nil {
		return policy.Result{}, unfit(s, state)
	}
	b.net.mu.Lock()
	defer b.net.mu.Unlock()
	if b.net.link != nil {
		return b.net.link.Check(host, port, transport), nil
	}
	if b.net.broken != nil {
		return policy.Result{}, b.net.broken
	}
	p, err := policy.Compile(policy.Spec{Mode: policy.Deny}, policy.Options{Phase: b.net.phase})
	if err != nil {
		return policy.Result{}, err
	}
	return p.Check(host, port, transport), nil
}

// state is what is in force. w.mu is held.
func (w *network) state() NetworkState {
	st := NetworkState{Phase: w.phase, Mode: policy.Deny}
	if w.phases != nil {
		if p, err := w.phases.Phase(w.phase); err == nil {
			st.Mode = p.Mode()
		}
	}
	if w.link != nil {
		st.Stats = w.link.Stats()
	}
	return st
}
