package guestproto

// Limits of what a message may hold. The peer's bytes over one of them are a
// protocol break; senders clip or refuse first.
const (
	MaxOpID       = 64
	MaxArgs       = 1 << 17
	MaxArg        = MaxFrame
	MaxEnv        = 1 << 13
	MaxName       = 256
	MaxPath       = 4096
	MaxNote       = 4096
	MaxAttrs      = 64
	MaxAttr       = 8 << 10
	MaxOutput     = 64 << 20
	DefaultOutput = 1 << 20
	// MaxInlineStdin is what an ExecRequest carries in its own frame, MaxStdin what is given whole.
	MaxInlineStdin = 128 << 10
	MaxStdin       = 8 << 20
	// MaxInlineOutput is what a Result carries in its own frame; more comes as events before it.
	MaxInlineOutput = 48 << 10
	maxText         = 4096
	maxDigest       = 32
)

// EncodeFields is the wire form.
func (h *Hello) EncodeFields(e *Encoder) {
	e.Uint(1, uint64(h.Major))
	e.Uint(2, uint64(h.Minor))
	e.String(3, h.Build)
	e.Strings(4, h.Features)
	e.String(5, h.BootID)
}

// DecodeFields reads the wire form.
func (h *Hello) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			h.Major = uint32(d.UintMax(1 << 20))
		case 2:
			h.Minor = uint32(d.UintMax(1 << 20))
		case 3:
			h.Build = d.String(MaxName)
		case 4:
			h.Features = d.AppendString(h.Features, 64, MaxName)
		case 5:
			h.BootID = d.String(MaxName)
		}
	}
}

// EncodeFields is the wire form; texts over their limit are clipped.
func (w *WireError) EncodeFields(e *Encoder) {
	e.String(1, clip(w.Class, MaxName))
	e.String(2, clip(w.Reason, MaxName))
	e.String(3, clip(w.Object, maxText))
	e.String(4, clip(w.Message, maxText))
	e.String(5, clip(w.Remedy, maxText))
}

// DecodeFields reads the wire form.
func (w *WireError) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			w.Class = d.String(MaxName)
		case 2:
			w.Reason = d.String(MaxName)
		case 3:
			w.Object = d.String(maxText)
		case 4:
			w.Message = d.String(maxText)
		case 5:
			w.Remedy = d.String(maxText)
		}
	}
}

func (w *WireError) Error() string {
	if w.Object == "" {
		return w.Message
	}
	return w.Object + ": " + w.Message
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// EncodeFields is the wire form.
func (r *Reply) EncodeFields(e *Encoder) { e.Int(1, r.N) }

// DecodeFields reads the wire form.
func (r *Reply) DecodeFields(d *Decoder) {
	for d.Next() {
		if d.Field() == 1 {
			r.N = d.Int()
		}
	}
}

// EncodeFields is the wire form.
func (r *DialRequest) EncodeFields(e *Encoder) {
	e.String(1, r.Network)
	e.String(2, r.Addr)
}

// DecodeFields reads the wire form.
func (r *DialRequest) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			r.Network = d.String(MaxName)
		case 2:
			r.Addr = d.String(MaxPath)
		}
	}
}

// EncodeFields is the wire form.
func (r *OpRequest) EncodeFields(e *Encoder) {
	e.String(1, r.OpID)
	e.String(2, r.Name)
	e.Int(3, r.Offset)
	e.Int(4, r.StderrOffset)
	e.Bytes(5, r.Data)
	e.Bool(6, r.EOF)
	e.Uint(7, uint64(r.Rows))
	e.Uint(8, uint64(r.Cols))
	e.String(9, r.Signal)
	e.Bool(10, r.Tree)
}

// DecodeFields reads the wire form.
func (r *OpRequest) DecodeFields(d *Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			r.OpID = d.String(MaxOpID)
		case 2:
			r.Name = d.String(MaxName)
		case 3:
			r.Offset = d.Int()
		case 4:
			r.StderrOffset = d.Int()
		case 5:
			r.Data = d.Bytes(MaxFrame)
		case 6:
			r.EOF = d.Bool()
		case 7:
			r.Rows = uint16(d.UintMax(1<<16 - 1))
		case 8:
			r.Cols = uint16(d.UintMax(1<<16 - 1))
		case 9:
			r.Signal = d.String(MaxName)
		case 10:
			r.Tree = d.Bool()
		}
	}
}
