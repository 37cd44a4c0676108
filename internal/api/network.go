package api

import (
	"context"
	"iter"
	"net/netip"

	"google.golang.org/protobuf/types/known/timestamppb"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	"github.com/dsec-platform/dsec/gen/dsec/v1/dsecv1connect"
	"github.com/dsec-platform/dsec/internal/control"
	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/egress/trail"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/spec"
	"github.com/dsec-platform/dsec/internal/specwire"
)

// Decisions are the record of what sessions tried to reach; *trail.Trail is one.
type Decisions interface {
	Find(ctx context.Context, f trail.Filter) ([]egress.Decision, error)
	Follow(ctx context.Context, f trail.Filter) <-chan egress.Decision
}

// networks serves NetworkService.
type networks struct{ *API }

func (n *networks) network() (control.Network, error) {
	c, ok := n.cfg.Control.(control.Network)
	if !ok || n.cfg.Decisions == nil {
		return nil, errdefs.Userf(errdefs.Unsupported, "network", "ask a server that has egress", "this server lets no box out")
	}
	return c, nil
}

func (n *networks) Switch(ctx context.Context, q *dsecv1.SwitchRequest) (*dsecv1.SwitchResponse, error) {
	c, err := n.network()
	if err != nil {
		return nil, err
	}
	if (q.GetPhase() == "") == (q.GetNetwork() == nil) {
		return nil, bad("phase", "give a phase of the session's network, or another network", "exactly one of phase and network must be set")
	}
	phase := q.GetPhase()
	if phase == basePhase {
		phase = ""
	}
	var network *spec.Network
	if q.GetNetwork() != nil {
		s := spec.Sandbox{Network: specwire.FromNetwork(q.GetNetwork())}
		if err := spec.Validate(&s); err != nil {
			return nil, err
		}
		network = &s.Network
	}
	state, err := c.SwitchNetwork(ctx, callerOf(ctx).project, q.GetSessionId(), phase, network)
	if err != nil {
		return nil, err
	}
	return &dsecv1.SwitchResponse{Phase: state.Phase, EgressPolicy: string(state.Mode)}, nil
}

// basePhase is how a request names the policy outside of the phases.
const basePhase = "base"

func (n *networks) Check(ctx context.Context, q *dsecv1.CheckRequest) (*dsecv1.CheckResponse, error) {
	c, err := n.network()
	if err != nil {
		return nil, err
	}
	if q.GetPort() < 1 || q.GetPort() > 65535 {
		return nil, bad("port", "use 1 to 65535", "is %d", q.GetPort())
	}
	if err := checkText("host", q.GetHost(), 253); err != nil {
		return nil, err
	}
	var transport policy.Protocol
	switch p := policy.Protocol(q.GetProtocol()); p {
	case "", policy.TCP, policy.UDP:
		transport = p
	default:
		return nil, bad("protocol", "use tcp or udp", "%q is neither", clip(q.GetProtocol()))
	}
	r, err := c.CheckNetwork(ctx, callerOf(ctx).project, q.GetSessionId(), q.GetHost(), uint16(q.GetPort()), transport)
	if err != nil {
		return nil, err
	}
	return &dsecv1.CheckResponse{
		Allowed: r.Allowed, Protocol: string(r.Protocol), Rule: r.Rule, Reason: string(r.Reason), Message: r.Message, Remedy: r.Remedy, Phase: r.Phase,
	}, nil
}

// explained bounds the refusals that Explain looks at.
const explained = 20_000

func (n *networks) Explain(ctx context.Context, q *dsecv1.ExplainRequest) (*dsecv1.ExplainResponse, error) {
	if _, err := n.network(); err != nil {
		return nil, err
	}
	f, err := n.filter(ctx, q.GetSessionId(), q.GetSince())
	if err != nil {
		return nil, err
	}
	f.Verdict, f.Limit = egress.Deny, explained
	found, err := n.cfg.Decisions.Find(ctx, f)
	if err != nil {
		return nil, err
	}
	attempts := make([]policy.Attempt, 0, len(found))
	for _, d := range found {
		if d.Kind != egress.Suppressed {
			attempts = append(attempts, d.Attempt())
		}
	}
	out := &dsecv1.ExplainResponse{}
	for _, s := range policy.Explain(attempts) {
		out.Suggestions = append(out.Suggestions, &dsecv1.Suggestion{
			Field: s.Field, Rule: s.Rule, Attempts: int64(s.Attempts), Names: s.Names, Note: s.Note, Wider: s.Wider,
		})
	}
	return out, nil
}

const maxLog = 100_000

func (n *networks) Log(ctx context.Context, q *dsecv1.LogRequest, stream dsecv1connect.NetworkServiceLogServerStream) error {
	if _, err := n.network(); err != nil {
		return err
	}
	f, err := n.filter(ctx, q.GetSessionId(), q.GetSince())
	if err != nil {
		return err
	}
	switch v := egress.Verdict(q.GetVerdict()); v {
	case "", egress.Allow, egress.Deny:
		f.Verdict = v
	default:
		return bad("verdict", "use allow or deny, or leave it out", "%q is neither", clip(q.GetVerdict()))
	}
	if q.GetLimit() < 0 || q.GetLimit() > maxLog {
		return bad("limit", "use 1 to 100,000, or 0 for 1,000", "is %d", q.GetLimit())
	}
	f.Limit = int(q.GetLimit())
	var news <-chan egress.Decision
	if q.GetFollow() { // before the look back, so that nothing is missed; what both give is sent once
		news = n.cfg.Decisions.Follow(ctx, f)
	}
	found, err := n.cfg.Decisions.Find(ctx, f)
	if err != nil {
		return err
	}
	for _, d := range found {
		if err := stream.Send(&dsecv1.LogResponse{Decision: wireDecision(&d)}); err != nil {
			return err
		}
	}
	if news == nil {
		return nil
	}
	for d := range unseen(found, news) {
		if err := stream.Send(&dsecv1.LogResponse{Decision: wireDecision(&d)}); err != nil {
			return err
		}
	}
	return nil
}

// unseen gives what comes of news and is not among found.
func unseen(found []egress.Decision, news <-chan egress.Decision) iter.Seq[egress.Decision] {
	seen := make(map[decisionKey]bool, len(found))
	for i := range found {
		seen[keyOf(&found[i])] = true
	}
	return func(yield func(egress.Decision) bool) {
		for d := range news {
			if !seen[keyOf(&d)] && !yield(d) {
				return
			}
		}
	}
}

// decisionKey tells decisions apart whose place in time says nothing: several are made at the same moment, and told in any order.
type decisionKey struct {
	nanos         int64
	session, name string
	flow          uint64
	kind          egress.Kind
	addr          netip.AddrPort
}

func keyOf(d *egress.Decision) decisionKey {
	return decisionKey{d.Time.UnixNano(), d.Session, d.Name, d.Flow, d.Kind, netip.AddrPortFrom(d.Addr, d.Port)}
}

// filter picks the caller's decisions, of one session or of all. An ended session's are found, too.
func (n *networks) filter(ctx context.Context, session string, since *timestamppb.Timestamp) (trail.Filter, error) {
	f := trail.Filter{Project: callerOf(ctx).project, Session: session}
	if since != nil {
		if err := since.CheckValid(); err != nil {
			return f, bad("since", "give a time", "%v", err)
		}
		f.Since = since.AsTime()
	}
	if session == "" {
		return f, nil
	}
	_, err := n.cfg.Control.Get(ctx, f.Project, session)
	return f, err
}

func wireDecision(d *egress.Decision) *dsecv1.Decision {
	w := &dsecv1.Decision{
		Time: timestamppb.New(d.Time), SessionId: d.Session, Op: d.Op, Phase: d.Phase, Kind: string(d.Kind), Flow: d.Flow, Name: d.Name, Port: int32(d.Port),
		Protocol: string(d.Protocol), Verdict: string(d.Verdict), Rule: d.Rule, Reason: string(d.Reason), Detail: d.Detail, Credential: d.Credential,
		Sent: d.Sent, Received: d.Received, DurationMs: float64(d.Duration.Microseconds()) / 1000, Count: d.Count,
	}
	if d.Addr.IsValid() {
		w.Address = d.Addr.String()
	}
	return w
}
