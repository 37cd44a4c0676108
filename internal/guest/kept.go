package guest

import (
	"slices"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// keptOp is an ended op.
type keptOp struct{ *op }

// EncodeFields implements guestproto.Message.
func (k *keptOp) EncodeFields(e *guestproto.Encoder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.String(1, k.digest)
	e.Message(2, &k.info)
	e.Message(3, k.result)
	e.Int(4, int64(k.child.pid.Load()))
	for i := range k.out {
		e.Message(5, &keptOutput{&k.out[i]})
	}
	if k.stdin != nil {
		e.Message(6, k.stdin)
	}
}

// DecodeFields implements guestproto.Message.
func (k *keptOp) DecodeFields(d *guestproto.Decoder) {
	stream := 0
	for d.Next() {
		switch d.Field() {
		case 1:
			k.digest = d.String(guestproto.MaxName)
		case 2:
			d.Message(&k.info)
		case 3:
			k.result = &guestproto.Result{}
			d.Message(k.result)
		case 4:
			k.child.pid.Store(int32(d.Int()))
		case 5:
			if stream == len(k.out) {
				d.Fail(guestproto.ErrBadMessage)
				return
			}
			d.Message(&keptOutput{&k.out[stream]})
			stream++
		case 6:
			k.stdin = newStdin(nil, false)
			d.Message(k.stdin)
		}
	}
	if k.result == nil || k.info.OpID == "" {
		d.Fail(guestproto.ErrBadMessage)
	}
}

// endedOp is an op that has ended and that nothing works for.
func (s *Server) endedOp() *op {
	o := &op{srv: s, agent: -1, stateFD: -1, oldState: -1, started: make(chan struct{}), done: make(chan struct{}), idle: make(chan struct{})}
	o.child.gone = true
	o.settle.Store(true)
	for i := range o.out {
		o.out[i] = output{budget: s.budget, headDone: true}
	}
	close(o.started)
	close(o.done)
	close(o.idle)
	return o
}

// keptOutput is what an ended op has put out.
type keptOutput struct{ *output }

// EncodeFields implements guestproto.Message.
func (k *keptOutput) EncodeFields(e *guestproto.Encoder) {
	e.Bytes(1, k.head)
	if k.full {
		e.Bytes(2, append(slices.Clone(k.tail[k.at:]), k.tail[:k.at]...))
	} else {
		e.Bytes(2, k.tail)
	}
	e.Int(3, k.total)
	e.Bool(4, k.freed)
}

// DecodeFields implements guestproto.Message.
func (k *keptOutput) DecodeFields(d *guestproto.Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			k.head = k.copied(d)
		case 2:
			k.tail = k.copied(d)
		case 3:
			k.total = d.Int()
		case 4:
			k.freed = d.Bool()
		}
	}
}

// copied is the current field, taken from the budget of all outputs.
func (k *keptOutput) copied(d *guestproto.Decoder) []byte {
	b := slices.Clone(d.Bytes(guestproto.MaxOutput))
	k.take(len(b), true)
	return b
}

// EncodeFields implements guestproto.Message.
func (s *stdin) EncodeFields(e *guestproto.Encoder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Int(1, s.taken)
	e.Bool(2, s.eof)
}

// DecodeFields implements guestproto.Message: of an input that is closed.
func (s *stdin) DecodeFields(d *guestproto.Decoder) {
	s.closed = true
	for d.Next() {
		switch d.Field() {
		case 1:
			s.taken = d.Int()
		case 2:
			s.eof = d.Bool()
		}
	}
}

// EncodeFields implements guestproto.Message.
func (f *fileOp) EncodeFields(e *guestproto.Encoder) {
	e.String(1, f.id)
	e.String(2, f.digest)
	e.Bytes(3, f.reply)
	if f.err != nil {
		e.Message(4, f.err)
	}
}

// DecodeFields implements guestproto.Message.
func (f *fileOp) DecodeFields(d *guestproto.Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			f.id = d.String(guestproto.MaxOpID)
		case 2:
			f.digest = d.String(guestproto.MaxName)
		case 3:
			f.reply = slices.Clone(d.Bytes(maxReply))
		case 4:
			f.err = &guestproto.WireError{}
			d.Message(f.err)
		}
	}
	if f.id == "" {
		d.Fail(guestproto.ErrBadMessage)
	}
}

// EncodeFields implements guestproto.Message.
func (f *leaf) EncodeFields(e *guestproto.Encoder) {
	e.String(1, f.name)
	e.Int(2, int64(f.dir))
	e.Int(3, int64(f.events))
	e.Int(4, f.base.user)
	e.Int(5, f.base.sys)
}

// DecodeFields implements guestproto.Message.
func (f *leaf) DecodeFields(d *guestproto.Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			f.name = d.String(guestproto.MaxName)
		case 2:
			f.dir = int(d.Int())
		case 3:
			f.events = int(d.Int())
		case 4:
			f.base.user = d.Int()
		case 5:
			f.base.sys = d.Int()
		}
	}
}

// keptSession is a shell session under its name.
type keptSession struct {
	name string
	*session
}

// EncodeFields implements guestproto.Message.
func (k *keptSession) EncodeFields(e *guestproto.Encoder) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e.String(1, k.name)
	e.String(2, k.shell)
	e.Uint(3, uint64(k.uid))
	e.Bytes(4, k.state)
}

// DecodeFields implements guestproto.Message.
func (k *keptSession) DecodeFields(d *guestproto.Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			k.name = d.String(guestproto.MaxFrame)
		case 2:
			k.shell = d.String(guestproto.MaxFrame)
		case 3:
			k.uid = uint32(d.Uint())
		case 4:
			k.state = slices.Clone(d.Bytes(maxState))
		}
	}
}
