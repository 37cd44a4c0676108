package guestclient

import (
	"errors"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

var errNonsense = errors.New("impossible event")

// checkEvent refuses what no guest may say.
func checkEvent(ev *guestproto.ExecEvent) error {
	ok := ev.Offset >= 0 && ev.Dropped >= 0
	switch ev.Kind {
	case guestproto.EventStarted:
	case guestproto.EventOutput, guestproto.EventGap:
		ok = ok && (ev.Stream == guestproto.Stdout || ev.Stream == guestproto.Stderr)
	case guestproto.EventExit:
		ok = ok && ev.Result != nil && checkResult(ev.Result)
	default:
		ok = false
	}
	if !ok {
		return errNonsense
	}
	return nil
}

func checkResult(r *guestproto.Result) bool {
	switch r.Limit {
	case guestproto.LimitNone, guestproto.LimitMemory, guestproto.LimitPids, guestproto.LimitDisk, guestproto.LimitOutput:
	default:
		return false
	}
	return r.ExitCode >= -1 && r.ExitCode <= 255 && r.WallMs >= 0 && r.UserMs >= 0 && r.SysMs >= 0 && r.PeakMemory >= 0 &&
		r.ReadBytes >= 0 && r.WriteBytes >= 0 && r.Survivors >= 0 && len(r.Signal) <= 32
}

// collector puts a result's output together from events.
type collector struct {
	limit int
	out   [2]collected
	any   bool
}

type collected struct {
	head, tail []byte
	pos        int64
	dropped    int64
}

func (c *collector) add(ev *guestproto.ExecEvent) error {
	if ev.Kind == guestproto.EventStarted {
		return nil
	}
	c.any = true
	o := &c.out[ev.Stream-1]
	if ev.Offset != o.pos {
		return errNonsense
	}
	switch {
	case ev.Kind == guestproto.EventGap:
		if o.dropped > 0 { // the tail moved on meanwhile
			o.dropped += int64(len(o.tail))
			o.tail = o.tail[:0]
		}
		o.dropped += ev.Dropped
		o.pos += ev.Dropped
	case o.dropped > 0:
		o.tail = append(o.tail, ev.Data...)
		o.pos += int64(len(ev.Data))
	default:
		o.head = append(o.head, ev.Data...)
		o.pos += int64(len(ev.Data))
	}
	if len(o.head)+len(o.tail) > c.limit+guestproto.MaxInlineOutput || o.pos < 0 {
		return errNonsense
	}
	return nil
}

// finish checks a result's outputs, and fills them in when they came as events.
func (c *collector) finish(r *guestproto.Result) error {
	for i, o := range []*guestproto.Output{&r.Stdout, &r.Stderr} {
		if c.any {
			got := &c.out[i]
			o.Head, o.Tail, o.Dropped, o.Total = got.head, got.tail, got.dropped, got.pos
		}
		if o.Dropped < 0 || o.Total < 0 || int64(len(o.Head)+len(o.Tail))+o.Dropped != o.Total || len(o.Head)+len(o.Tail) > c.limit+guestproto.MaxInlineOutput {
			return errNonsense
		}
	}
	return nil
}
