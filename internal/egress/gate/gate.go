package gate

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/audit"
	"github.com/dsec-platform/dsec/internal/egress/limit"
	"github.com/dsec-platform/dsec/internal/egress/pin"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

const maxPins = 4096

// crowd is the number of open flows from which on the node keeps little for each further one.
const crowd = 64

// maxLarge is how many heads and hellos that are larger than usual a box may have the node keep at once.
const maxLarge = 32

// Gate judges one box. All methods are safe for concurrent use.
type Gate struct {
	Node *Node
	ID   egress.Identity

	rec      *audit.Recorder
	pins     *pin.Set
	turn     *limit.Turn
	state    atomic.Pointer[state]
	explains bool
	pages    *limit.Bucket
	large    atomic.Int32
	open     atomic.Int32 // flows

	mu       sync.Mutex
	flows    map[uint64]*Flow
	next     uint64
	closed   bool
	resolved map[string]egress.Preflight
}

// state is a policy in force with its measures; a switch replaces it whole.
type state struct {
	policy    *policy.Policy
	connects  *limit.Bucket
	queries   *limit.Bucket
	refusals  *limit.Bucket
	bandwidth *limit.Bucket
	names     *limit.Names
	moved     atomic.Int64
}

func newState(p *policy.Policy) *state {
	l := p.Limits()
	twice := func(n int) *limit.Bucket { return limit.NewBucket(float64(n), float64(2*n)) }
	return &state{
		policy: p, connects: twice(l.ConnectsPerSecond), queries: twice(l.DNSPerSecond),
		refusals:  limit.NewBucket(float64(l.RefusalsPerSecond), float64(l.RefusalsPerSecond)/4),
		bandwidth: limit.NewBucket(float64(l.Bandwidth), max(float64(l.Bandwidth)/4, chunk)),
		names:     limit.NewNames(l.DNSNamesPerMinute),
	}
}

// New makes the gate of a box, which the attachment describes.
func New(n *Node, a *egress.Attachment) *Gate {
	id, p, resolved := a.Box, a.Policy, a.Resolved
	g := &Gate{
		Node: n, ID: id, rec: audit.New(n.Sink, id), pins: pin.New(maxPins), turn: n.turns.Join(),
		explains: a.Trusts && n.Credentials != nil, pages: limit.NewBucket(pagesPerSecond, 2*pagesPerSecond),
		flows: map[uint64]*Flow{}, resolved: map[string]egress.Preflight{},
	}
	for _, r := range resolved {
		if len(r.Addrs) > 0 {
			g.resolved[r.Name] = r
		}
	}
	g.state.Store(newState(p))
	g.rec.Policy(p)
	return g
}

// Policy is the one in force.
func (g *Gate) Policy() *policy.Policy { return g.state.Load().policy }

// Record records a decision that was made elsewhere about this box.
func (g *Gate) Record(d egress.Decision) { g.rec.Record(d) }

// Refuse records a refusal and charges the box for the work that it was.
func (g *Gate) Refuse(d egress.Decision) {
	d.Verdict = egress.Deny
	g.rec.Record(d)
	g.Charge()
}

// Charge makes the box pay for work as for a refusal, without a record.
func (g *Gate) Charge() { g.state.Load().refusals.Spend(1) }

// Crowded tells whether the box has so many open flows that the node should keep little for each.
func (g *Gate) Crowded() bool { return g.open.Load() > crowd }

// BeginLarge takes one of the box's places for heads that are larger than usual, if one is free; EndLarge gives it back.
func (g *Gate) BeginLarge() bool {
	if g.large.Add(1) <= maxLarge {
		return true
	}
	g.large.Add(-1)
	return false
}

// EndLarge gives a place of BeginLarge back.
func (g *Gate) EndLarge() { g.large.Add(-1) }

// Pace says how long to leave the box's packets in its own queue: it was refused more than its limit.
func (g *Gate) Pace() time.Duration { return min(g.state.Load().refusals.Wait(), 50*time.Millisecond) }

// Switch puts p in force and cuts the flows that it does not allow.
func (g *Gate) Switch(p *policy.Policy) {
	g.mu.Lock()
	g.state.Store(newState(p))
	g.rec.Policy(p)
	var cut []*Flow
	for _, f := range g.flows {
		if !f.allowedBy(p) {
			cut = append(cut, f)
		}
	}
	g.mu.Unlock()
	for _, f := range cut {
		f.Cut(policy.PolicyChanged)
	}
	g.pins.Keep(func(name string) bool { m, _ := p.Name(name); return m.OK })
	g.rec.Record(egress.Decision{Kind: egress.Switch, Verdict: egress.Allow, Detail: string(p.Mode()), Count: int64(len(cut))})
}

// Close cuts every flow; nothing is allowed any more.
func (g *Gate) Close(reason policy.Reason) {
	g.mu.Lock()
	g.closed = true
	var all []*Flow
	for _, f := range g.flows {
		all = append(all, f)
	}
	g.mu.Unlock()
	for _, f := range all {
		f.Cut(reason)
	}
	for _, f := range all {
		<-f.ended
	}
	g.rec.Close()
}

// Stats counts since the gate was made.
func (g *Gate) Stats() egress.Stats {
	c := &g.rec.Counts
	g.mu.Lock()
	open := len(g.flows)
	g.mu.Unlock()
	return egress.Stats{
		Boxes: 1, Open: int64(open), Pins: int64(g.pins.Len()), Allowed: c.Allowed.Load(), Refused: c.Refused.Load(), Limited: c.Limited.Load(),
		Queries: c.Queries.Load(), Sent: c.Sent.Load(), Received: c.Received.Load(), Records: c.Records.Load(), Suppressed: c.Suppressed.Load(),
	}
}

// Check says what would be decided, with the pins of this box.
func (g *Gate) Check(host string, port uint16, transport policy.Protocol) policy.Result {
	p := g.Policy()
	r := p.Check(host, port, transport)
	a, err := netip.ParseAddr(host)
	if err != nil {
		return r
	}
	if r.Allowed && g.Node.Never(a.Unmap()) {
		r.Allowed, r.Reason = false, policy.AddressForbidden
		r.Message, r.Remedy = host+" is refused: "+r.Reason.Text(), ""
		return r
	}
	if r.Allowed || p.Address(a) != "" {
		return r
	}
	for _, name := range g.pins.Names(a.Unmap()) {
		if byName := p.Check(name, port, transport); byName.Allowed {
			byName.Host = host
			byName.Message = host + " is what " + name + " resolved to: " + byName.Message
			return byName
		}
	}
	return r
}
