package node

import (
	"bufio"
	"errors"
	"io"
	"time"

	"github.com/dsec-platform/dsec/internal/runtime"
)

// replayed is what a journal says: the node's epoch and every box that is not gone.
type replayed struct {
	bootID  string
	epoch   int64
	run     int64
	boxes   map[string]*journaled
	damaged int   // lines that were torn or damaged and skipped
	size    int64 // bytes up to the end of the last whole line
}

// journaled is the last known state of a box.
type journaled struct {
	meta      meta
	record    *runtime.Record
	last      recordKind
	state     State // of a bound box
	stateAt   time.Duration
	suspended time.Duration
	cause     EventKind
}

// replay reads records until the end. A damaged line is skipped: what it said is
// made good by the sweep, which removes whatever no record speaks for.
func replay(r io.Reader) (*replayed, error) {
	p := &replayed{boxes: map[string]*journaled{}}
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 {
				p.damaged++
			}
			return p, nil
		}
		if err != nil {
			return nil, err
		}
		p.size += int64(len(line))
		if rec, ok := decodeRecord(line[:len(line)-1]); ok {
			p.apply(&rec)
		} else {
			p.damaged++
		}
	}
}

func (p *replayed) apply(r *record) {
	if r.Kind == recEpoch {
		p.bootID, p.epoch, p.run = r.BootID, r.Epoch, r.Run
		return
	}
	if r.Kind == recGone {
		delete(p.boxes, r.Box)
		return
	}
	b := p.boxes[r.Box]
	if b == nil {
		// A box whose first record was damaged: without its meta it can only be destroyed.
		b = &journaled{last: recCreating}
		p.boxes[r.Box] = b
	}
	if r.Meta != nil {
		b.meta = *r.Meta
	}
	if r.Record != nil {
		b.record = r.Record
	}
	switch r.Kind {
	case recNetwork:
		b.meta.Network = r.Network
		return
	case recState:
		b.state, b.stateAt, b.suspended = r.State, r.At, r.Suspended
		return
	case recBound:
		b.state, b.meta.Started, b.stateAt, b.suspended = Live, r.At, r.At, 0
	case recLost, recDestroying:
		b.cause = r.Cause
	case recCreating, recMade, recPool, recClaiming:
	default:
		return // of a newer version
	}
	b.last = r.Kind
}

// records gives the shortest journal that replays to the same.
func (p *replayed) records() []*record {
	out := []*record{{Kind: recEpoch, BootID: p.bootID, Epoch: p.epoch, Run: p.run}}
	for id, b := range p.boxes {
		out = append(out, &record{Kind: recCreating, Box: id, Meta: &b.meta, Record: b.record})
		if b.last != recCreating {
			out = append(out, &record{Kind: b.last, Box: id, At: b.meta.Started, Cause: b.cause})
		}
		if b.last == recBound && (b.state != Live || b.suspended != 0) {
			out = append(out, &record{Kind: recState, Box: id, State: b.state, At: b.stateAt, Suspended: b.suspended})
		}
	}
	return out
}
