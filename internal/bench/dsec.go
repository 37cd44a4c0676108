package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

// Options of a run against one server.
type Options struct {
	Client   *dsec.Client
	Addr     string // host:port of the server, for calls without the client; empty: there are none
	Key      string // API key of these calls
	Template string
	SpecYAML string // overrides of the production default spec; empty: none
	Pooled   bool   // let creates take boxes of the warm pool
	Load     Load
	Passes   int
	Peers    []string
	RootFS   string // directory that peers run on; needed with Peers
	// Bare makes the peer "bare": boxes of the runtime alone, without API, SQL,
	// journal and admission, in this process. Nil: there is none.
	Bare     func() (Bare, error)
	Progress func(string)
}

// Bare is the runtime without the product around it.
type Bare interface {
	// Run makes box id and runs `true` in it. The box lives until EndAll.
	Run(ctx context.Context, id string) error
	EndAll()
	Close()
}

func (o *Options) create(ctx context.Context) (*dsec.Session, error) {
	return o.Client.Create(ctx, dsec.CreateOptions{
		Template: o.Template, SpecYAML: o.SpecYAML, NoPool: !o.Pooled, Labels: map[string]string{"dsec-bench": "1"},
	})
}

func (o *Options) mode() string {
	if o.Pooled {
		return "pooled"
	}
	return "cold"
}

// Create measures create, create → first result, and destroy, with the peers
// in alternating passes.
func Create(ctx context.Context, o Options) ([]Result, map[string]string, error) {
	if err := o.Load.Validate(); err != nil {
		return nil, nil, err
	}
	peers, absent := o.peers()
	defer closeAll(peers)
	creates, firsts, stops := []*pass{}, []*pass{}, []*pass{}
	peerPasses := map[string][]*pass{}
	hits := 0
	for i := range o.Passes {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if o.Pooled {
			if err := o.poolFilled(ctx); err != nil {
				return nil, nil, err
			}
		}
		o.say("pass %d/%d: dsec create %s %s", i+1, o.Passes, o.mode(), o.Load.Pattern)
		create, first, stop, h := &pass{}, &pass{}, &pass{}, atomic.Int64{}
		var mu sync.Mutex
		var live []*dsec.Session // a burst stays alive until all have answered
		whole := o.Load.run(ctx, func(ctx context.Context, due time.Time, _ int) error {
			s, err := o.create(ctx)
			create.add(time.Since(due), err)
			if err != nil {
				first.add(0, err)
				return err
			}
			if s.Info().GetPooled() {
				h.Add(1)
			}
			err = run1(ctx, s)
			first.add(time.Since(due), err)
			if o.Load.Pattern != "burst" {
				stopNow(ctx, s, stop)
				return err
			}
			mu.Lock()
			live = append(live, s)
			mu.Unlock()
			return err
		})
		create.wall, create.cpu, first.wall, first.cpu = whole.wall, whole.cpu, whole.wall, whole.cpu
		Load{Pattern: "staggered", N: len(live), Concurrency: 8}.run(ctx, func(ctx context.Context, _ time.Time, i int) error {
			stopNow(ctx, live[i], stop)
			return nil
		})
		hits += int(h.Load())
		creates, firsts, stops = append(creates, create), append(firsts, first), append(stops, stop)
		for _, p := range peers {
			o.say("pass %d/%d: %s", i+1, o.Passes, p.name)
			peerPasses[p.name] = append(peerPasses[p.name], o.Load.run(ctx, func(ctx context.Context, _ time.Time, _ int) error { return p.once(ctx) }))
			p.after()
		}
	}
	base := Result{System: "dsec", Mode: o.mode(), Pattern: o.Load.Pattern, Concurrency: o.Load.Concurrency}
	var out []Result
	for _, x := range []struct {
		op string
		p  []*pass
	}{{"create", creates}, {"create_exec", firsts}, {"destroy", stops}} {
		r := base
		r.Op = x.op
		r = reduce(r, x.p)
		if x.op == "destroy" { // timed inside the passes of create: no wall or CPU of its own
			r.Rate, r.Wall, r.CPU = 0, 0, 0
		}
		if o.Pooled && x.op == "create" {
			rate := float64(hits) / float64(max(1, r.N*r.Passes))
			r.PoolHitRate = &rate
		}
		out = append(out, r)
	}
	for _, p := range peers {
		out = append(out, reduce(Result{System: p.name, Op: "create_exec", Mode: "cold", Pattern: o.Load.Pattern, Concurrency: o.Load.Concurrency}, peerPasses[p.name]))
	}
	return out, describe(peers, absent), nil
}

// poolFilled waits until the warm pool has reached its target, or no longer grows.
func (o *Options) poolFilled(ctx context.Context) error {
	last, since := int32(-1), time.Now()
	for {
		s, err := o.Client.Nodes.GetStats(ctx, &dsecv1.GetStatsRequest{})
		if err != nil {
			return dsec.AsError(err)
		}
		if s.GetPooled() != last {
			last, since = s.GetPooled(), time.Now()
		}
		if (s.GetPoolTarget() > 0 && s.GetPooled() >= s.GetPoolTarget()) || time.Since(since) > 5*time.Second {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func stopNow(ctx context.Context, s *dsec.Session, p *pass) {
	t := time.Now()
	err := s.Stop(context.WithoutCancel(ctx), "bench")
	p.add(time.Since(t), err)
}

func (o *Options) say(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

func (o *Options) peers() (ps []*peer, absent map[string]string) {
	absent = map[string]string{}
	for _, name := range o.Peers {
		p, err := o.peer(name)
		if err != nil {
			absent[name] = "absent: " + err.Error()
			continue
		}
		ps = append(ps, p)
	}
	return ps, absent
}

func (o *Options) peer(name string) (*peer, error) {
	if name != "bare" {
		return newPeer(name, o.RootFS)
	}
	if o.Bare == nil {
		return nil, fmt.Errorf("needs a server that bench starts itself")
	}
	b, err := o.Bare()
	if err != nil {
		return nil, err
	}
	return &peer{name: name, version: "the native runtime alone, same template and spec", run: b.Run, after: b.EndAll, close: b.Close}, nil
}

func closeAll(ps []*peer) {
	for _, p := range ps {
		p.close()
	}
}

func describe(ps []*peer, absent map[string]string) map[string]string {
	for _, p := range ps {
		absent[p.name] = p.version
	}
	return absent
}

// Describe makes a report's header.
func Describe(ctx context.Context, c *dsec.Client, template, specDigest string, peers map[string]string) (Header, error) {
	h := Header{Machine: thisMachine(), Template: template, Spec: specDigest, Includes: includes, Peers: peers}
	t, err := c.Templates.GetTemplate(ctx, &dsecv1.GetTemplateRequest{Template: template})
	if err != nil {
		return h, dsec.AsError(err)
	}
	h.Template, h.Digest = t.GetTemplate().GetName()+"@"+t.GetTemplate().GetVersion(), t.GetTemplate().GetDigest()
	return h, nil
}
