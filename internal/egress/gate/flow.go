package gate

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// chunk is how many bytes are moved in one turn at most.
const chunk = 512 << 10

// Flow is an allowed connection, or one that is let speak so that it can be judged.
type Flow struct {
	ID uint64

	g         *Gate
	transport policy.Protocol
	addr      netip.AddrPort
	others    []netip.Addr
	started   time.Time
	op        string // that began it, if it is known; its later records are of the same
	sent      atomic.Int64
	received  atomic.Int64
	ended     chan struct{}
	stop      context.CancelFunc
	ctx       context.Context

	mu     sync.Mutex
	name   string
	match  policy.Match // not OK while the flow waits to be judged
	reason policy.Reason
	onCut  []func()
	spoke  bool // it was allowed once, so that its end is recorded
}

// Open registers a flow under the limits. It is refused when the policy that judged it is no
// longer in force, so that no flow slips through a switch.
func (g *Gate) Open(v Verdict, transport policy.Protocol) (*Flow, policy.Reason) {
	st := v.state
	l := st.policy.Limits()
	switch {
	case !st.connects.Take(1):
		return nil, policy.LimitConnects
	case l.Bytes > 0 && st.moved.Load() >= l.Bytes:
		return nil, policy.LimitBytes
	}
	op := g.ID.Cause()
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.closed, g.state.Load() != st:
		return nil, policy.PolicyChanged
	case len(g.flows) >= l.Connections:
		return nil, policy.LimitConnections
	}
	g.next++
	f := &Flow{ID: g.next, g: g, transport: transport, addr: v.Addr, others: v.others, started: time.Now(), op: op, ended: make(chan struct{}), match: v.Match, name: v.Name}
	f.ctx, f.stop = context.WithCancel(context.Background())
	g.flows[f.ID] = f
	g.open.Store(int32(len(g.flows)))
	return f, ""
}

// Context ends when the flow is cut or ends.
func (f *Flow) Context() context.Context { return f.ctx }

// Dial connects to the flow's destination; the caller cuts the connection with the flow.
func (f *Flow) Dial() (net.Conn, error) {
	network := "tcp"
	if f.transport == policy.UDP {
		network = "udp"
	}
	first := f.Addr()
	conn, err := f.g.Node.dial(f.ctx, network, first)
	for _, a := range f.others {
		if err == nil || f.ctx.Err() != nil {
			break
		}
		to := netip.AddrPortFrom(a, first.Port())
		if conn, err = f.g.Node.dial(f.ctx, network, to); err == nil {
			f.mu.Lock()
			f.addr = to
			f.mu.Unlock()
		}
	}
	return conn, err
}

// OnCut calls abort when the flow is cut, at once if it was already.
func (f *Flow) OnCut(abort func()) {
	f.mu.Lock()
	cut := f.reason != ""
	if !cut {
		f.onCut = append(f.onCut, abort)
	}
	f.mu.Unlock()
	if cut {
		abort()
	}
}

// Cut ends the flow: both ends see a reset.
func (f *Flow) Cut(reason policy.Reason) {
	f.mu.Lock()
	if f.reason != "" {
		f.mu.Unlock()
		return
	}
	f.reason = reason
	abort := f.onCut
	f.onCut = nil
	f.mu.Unlock()
	f.stop()
	for _, a := range abort {
		a()
	}
}

// Allow sets what the flow is judged to be, and records it. It tells whether the policy in force
// still says so.
func (f *Flow) Allow(name string, m policy.Match, d egress.Decision) bool {
	f.mu.Lock()
	f.name, f.match = name, m
	cut := f.reason != ""
	f.mu.Unlock()
	if cut || !f.allowedBy(f.g.Policy()) {
		f.Cut(policy.PolicyChanged)
		return false
	}
	f.mu.Lock()
	f.spoke = true
	f.mu.Unlock()
	d.Verdict, d.Rule, d.Protocol, d.Name = egress.Allow, m.Rule, m.Protocol, name
	f.fill(&d)
	f.g.rec.Record(d)
	return true
}

// Refuse records why bytes of the flow are not let out. The end of a flow that was never allowed is
// not recorded.
func (f *Flow) Refuse(d egress.Decision) {
	f.fill(&d)
	f.g.Refuse(d)
}

func (f *Flow) fill(d *egress.Decision) {
	d.Flow, d.Op = f.ID, f.op
	if d.Kind == "" {
		d.Kind = egress.Connect
	}
	if to := f.Addr(); !d.Addr.IsValid() {
		d.Addr, d.Port = to.Addr(), to.Port()
	}
	if d.Protocol == "" {
		d.Protocol = f.transport
	}
}

// End forgets the flow and records what it moved. reason is empty for an ordinary end; what cut it wins.
func (f *Flow) End(reason policy.Reason) {
	f.stop()
	f.g.mu.Lock()
	delete(f.g.flows, f.ID)
	f.g.open.Store(int32(len(f.g.flows)))
	f.g.mu.Unlock()
	f.mu.Lock()
	if f.reason != "" {
		reason = f.reason
	}
	f.reason = reason
	d := egress.Decision{
		Kind: egress.Close, Verdict: egress.Allow, Name: f.name, Rule: f.match.Rule, Protocol: f.match.Protocol, Reason: reason,
		Sent: f.sent.Load(), Received: f.received.Load(), Duration: time.Since(f.started), Credential: f.match.Credential,
	}
	record := f.spoke
	f.mu.Unlock()
	if record {
		f.fill(&d)
		f.g.rec.Record(d)
	}
	close(f.ended)
}

// allowedBy judges the flow anew. One that waits to be judged goes on: the judgement is to come.
func (f *Flow) allowedBy(p *policy.Policy) bool {
	f.mu.Lock()
	name, old, to := f.name, f.match, f.addr
	f.mu.Unlock()
	if !old.OK {
		return !p.Closed()
	}
	if p.Address(to.Addr()) != "" {
		return false
	}
	if name != "" {
		m := p.Host(name, to.Port(), f.transport)
		// What was let out unread cannot go on under a rule that wants it read.
		if m.OK && (m.Protocol == old.Protocol && m.Credential == old.Credential || m.Protocol == policy.TCP) {
			return true
		}
	}
	return p.Addr(to.Addr(), to.Port(), f.transport).OK
}

// Sent counts bytes that left the box, Received bytes that came; both wait as the limits of bandwidth say.
func (f *Flow) Sent(n int) {
	f.sent.Add(int64(n))
	f.g.rec.Counts.Sent.Add(int64(n))
	f.moved(n)
}

// Received counts bytes that came to the box.
func (f *Flow) Received(n int) {
	f.received.Add(int64(n))
	f.g.rec.Counts.Received.Add(int64(n))
	f.moved(n)
}

func (f *Flow) moved(n int) {
	st := f.g.state.Load()
	if most := st.policy.Limits().Bytes; st.moved.Add(int64(n)) > most && most > 0 {
		f.Cut(policy.LimitBytes)
		return
	}
	wait := max(st.bandwidth.Spend(float64(n)), f.g.Node.bandwidth.Spend(float64(n)))
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-f.ctx.Done():
	}
}

// Turn runs work that moves a chunk and does not block, when it is the box's turn.
func (f *Flow) Turn(work func()) {
	f.g.turn.Begin()
	defer f.g.turn.End()
	work()
}

// Addr is the flow's destination.
func (f *Flow) Addr() netip.AddrPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.addr
}

// Gate is the box's.
func (f *Flow) Gate() *Gate { return f.g }
