package api

import (
	"context"

	"github.com/dsec-platform/dsec/internal/guestclient"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// waitOp follows an operation to its end and gives its result with what was kept of its output.
func waitOp(ctx context.Context, g guestclient.API, op string) (*guestproto.Result, error) {
	stream, err := g.Attach(ctx, op, 0, 0)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	var out, errs gathered
	for {
		ev, err := stream.Recv()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		switch {
		case ev.Kind == guestproto.EventExit:
			r := *ev.Result
			out.into(&r.Stdout)
			errs.into(&r.Stderr)
			return &r, nil
		case ev.Stream == guestproto.Stderr:
			errs.add(&ev)
		default:
			out.add(&ev)
		}
	}
}

// gathered puts a stream's output together from events. Its size is bounded by
// what a guest keeps, which the guest's client enforces.
type gathered struct {
	head, tail []byte
	dropped    int64
}

func (k *gathered) add(ev *guestproto.ExecEvent) {
	switch {
	case ev.Kind == guestproto.EventGap:
		// What came between two gaps is neither head nor tail.
		k.dropped += ev.Dropped + int64(len(k.tail))
		k.tail = k.tail[:0]
	case k.dropped > 0:
		k.tail = append(k.tail, ev.Data...)
	default:
		k.head = append(k.head, ev.Data...)
	}
}

func (k *gathered) into(o *guestproto.Output) {
	if len(o.Head)+len(o.Tail) == 0 {
		o.Head, o.Tail, o.Dropped = k.head, k.tail, k.dropped
		o.Total = int64(len(k.head)+len(k.tail)) + k.dropped
	}
}
