package guestproto

import (
	"errors"
	"math"
)

// Wire types: the subset of protocol buffers' encoding that the guest speaks.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// MaxFrame bounds a frame's payload.
const MaxFrame = 1 << 20

// ErrBadMessage is every decoding failure: the peer's bytes are not a message.
var ErrBadMessage = errors.New("guestproto: malformed message")

// ErrTooLong is a field, list or frame over its limit.
var ErrTooLong = errors.New("guestproto: field over its limit")

// Message is anything with a TLV form. DecodeFields must skip unknown fields.
type Message interface {
	EncodeFields(e *Encoder)
	DecodeFields(d *Decoder)
}

// Marshal appends m's encoding to b.
func Marshal(b []byte, m Message) []byte {
	e := Encoder{Buf: b}
	m.EncodeFields(&e)
	return e.Buf
}

// Unmarshal decodes b into m. m may alias b; the caller must not reuse b.
func Unmarshal(b []byte, m Message) error {
	d := NewDecoder(b)
	m.DecodeFields(d)
	return d.Err()
}

// Encoder appends fields to Buf. Zero values are not written (but for items of
// lists). The zero Encoder is ready.
type Encoder struct{ Buf []byte }

func (e *Encoder) varint(v uint64) {
	for v >= 0x80 {
		e.Buf = append(e.Buf, byte(v)|0x80)
		v >>= 7
	}
	e.Buf = append(e.Buf, byte(v))
}

func (e *Encoder) tag(field uint32, wire uint64) { e.varint(uint64(field)<<3 | wire) }

// Uint writes an unsigned number.
func (e *Encoder) Uint(field uint32, v uint64) {
	if v != 0 {
		e.tag(field, wireVarint)
		e.varint(v)
	}
}

// Int writes a signed number (zigzag).
func (e *Encoder) Int(field uint32, v int64) { e.Uint(field, uint64(v<<1)^uint64(v>>63)) }

// Bool writes a flag.
func (e *Encoder) Bool(field uint32, v bool) {
	if v {
		e.Uint(field, 1)
	}
}

// Float writes a float64.
func (e *Encoder) Float(field uint32, v float64) {
	if v == 0 {
		return
	}
	e.tag(field, wireFixed64)
	u := math.Float64bits(v)
	for range 8 {
		e.Buf = append(e.Buf, byte(u))
		u >>= 8
	}
}

// Bytes writes a byte string.
func (e *Encoder) Bytes(field uint32, v []byte) {
	if len(v) != 0 {
		e.tag(field, wireBytes)
		e.varint(uint64(len(v)))
		e.Buf = append(e.Buf, v...)
	}
}

// String writes a string, which need not be UTF-8.
func (e *Encoder) String(field uint32, v string) {
	if len(v) != 0 {
		e.item(field, v)
	}
}

func (e *Encoder) item(field uint32, v string) {
	e.tag(field, wireBytes)
	e.varint(uint64(len(v)))
	e.Buf = append(e.Buf, v...)
}

// Strings writes a list; empty items are kept.
func (e *Encoder) Strings(field uint32, list []string) {
	for _, v := range list {
		e.item(field, v)
	}
}

// Uints writes a list of numbers; zeros are kept.
func (e *Encoder) Uints(field uint32, list []uint64) {
	for _, v := range list {
		e.tag(field, wireVarint)
		e.varint(v)
	}
}

// Message writes a nested message, also when it has no fields set.
func (e *Encoder) Message(field uint32, m Message) {
	inner := Encoder{}
	m.EncodeFields(&inner)
	e.tag(field, wireBytes)
	e.varint(uint64(len(inner.Buf)))
	e.Buf = append(e.Buf, inner.Buf...)
}
