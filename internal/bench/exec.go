package bench

import (
	"context"
	"fmt"
	"time"

	dsecv1 "github.com/dsec-platform/dsec/gen/dsec/v1"
	dsec "github.com/dsec-platform/dsec/sdk/go"
)

var trueCmd = dsec.Command{Argv: []string{"true"}}

// run1 runs `true` and checks that it ended well.
func run1(ctx context.Context, s *dsec.Session) error {
	r, err := s.Run(ctx, trueCmd)
	if err != nil {
		return err
	}
	return endedWell(r)
}

func endedWell(r *dsecv1.Result) error {
	if e := r.GetError(); e != nil {
		return dsec.FromWire(e)
	}
	if r.GetExitCode() != 0 {
		return fmt.Errorf("true ended with %d %s", r.GetExitCode(), r.GetSignal())
	}
	return nil
}

// Exec measures exec of `true` in boxes that live, one for each worker.
func Exec(ctx context.Context, o Options) ([]Result, error) {
	if err := o.Load.Validate(); err != nil {
		return nil, err
	}
	boxes := make(chan *dsec.Session, o.Load.Concurrency)
	defer func() {
		close(boxes)
		for s := range boxes {
			_ = s.Stop(context.WithoutCancel(ctx), "bench")
		}
	}()
	for range min(o.Load.Concurrency, o.Load.N) {
		s, err := o.create(ctx)
		if err != nil {
			return nil, err
		}
		boxes <- s
	}
	var byClient, byWire []*pass
	for i := range o.Passes {
		o.say("pass %d/%d: exec", i+1, o.Passes)
		byClient = append(byClient, o.Load.run(ctx, func(ctx context.Context, _ time.Time, _ int) error {
			s := <-boxes
			defer func() { boxes <- s }()
			return run1(ctx, s)
		}))
		if o.Addr == "" {
			continue
		}
		p, err := o.execByWire(ctx, boxes)
		if err != nil {
			return nil, err
		}
		byWire = append(byWire, p)
	}
	base := Result{System: "dsec", Op: "exec", Mode: o.mode(), Pattern: o.Load.Pattern, Concurrency: o.Load.Concurrency}
	results := []Result{reduce(base, byClient)}
	if len(byWire) > 0 {
		base.Op = "exec_http"
		results = append(results, reduce(base, byWire))
	}
	return results, nil
}

// execByWire is a pass without the Go client; each box has a connection of its own.
func (o *Options) execByWire(ctx context.Context, boxes chan *dsec.Session) (*pass, error) {
	type worker struct {
		w *wire
		s *dsec.Session
	}
	workers := make(chan worker, cap(boxes))
	defer func() {
		close(workers)
		for w := range workers {
			w.w.conn.Close()
			boxes <- w.s
		}
	}()
	for range min(o.Load.Concurrency, o.Load.N) {
		w, err := dialWire(ctx, o.Addr, o.Key)
		if err != nil {
			return nil, err
		}
		workers <- worker{w, <-boxes}
	}
	return o.Load.run(ctx, func(ctx context.Context, _ time.Time, _ int) error {
		w := <-workers
		defer func() { workers <- w }()
		return w.w.run1(ctx, w.s.ID())
	}), nil
}
