package guestproto

import "math"

// Decoder walks the fields of one message. The first failure sticks: Next gives
// false and Err says why, so a decoding loop needs no error checks:
//
//	for d.Next() {
//		switch d.Field() {
//		case 1:
//			m.Name = d.String(255)
//		}
//	}
type Decoder struct {
	buf   []byte
	err   error
	field uint32
	wire  uint8
	num   uint64
	data  []byte
}

// NewDecoder reads b, which it never copies nor changes.
func NewDecoder(b []byte) *Decoder { return &Decoder{buf: b} }

// Err is the first failure, or nil.
func (d *Decoder) Err() error { return d.err }

// Fail makes err (a limit of the message's own) the decoder's failure.
func (d *Decoder) Fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *Decoder) varint() (v uint64) {
	for i, shift := 0, 0; i < len(d.buf) && shift < 64; i, shift = i+1, shift+7 {
		c := d.buf[i]
		if shift == 63 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			d.buf = d.buf[i+1:]
			return v
		}
	}
	d.Fail(ErrBadMessage)
	return 0
}

// Next goes to the next field; false at the end or after a failure.
func (d *Decoder) Next() bool {
	if d.err != nil || len(d.buf) == 0 {
		return false
	}
	key := d.varint()
	if d.err != nil {
		return false
	}
	if key>>3 == 0 || key>>3 > math.MaxInt32 {
		d.Fail(ErrBadMessage)
		return false
	}
	d.field, d.wire, d.num, d.data = uint32(key>>3), uint8(key&7), 0, nil
	switch d.wire {
	case wireVarint:
		d.num = d.varint()
	case wireFixed64:
		d.num = d.fixed(8)
	case wireFixed32:
		d.num = d.fixed(4)
	case wireBytes:
		n := d.varint()
		if d.err == nil && n > uint64(len(d.buf)) {
			d.Fail(ErrBadMessage)
		}
		if d.err == nil {
			d.data, d.buf = d.buf[:n:n], d.buf[n:]
		}
	default:
		d.Fail(ErrBadMessage)
	}
	return d.err == nil
}

func (d *Decoder) fixed(n int) (v uint64) {
	if len(d.buf) < n {
		d.Fail(ErrBadMessage)
		return 0
	}
	for i := n - 1; i >= 0; i-- {
		v = v<<8 | uint64(d.buf[i])
	}
	d.buf = d.buf[n:]
	return v
}

// Field is the current field's number.
func (d *Decoder) Field() uint32 { return d.field }

func (d *Decoder) want(wire uint8) bool {
	if d.wire != wire {
		d.Fail(ErrBadMessage)
	}
	return d.err == nil
}

// Uint is the current field as an unsigned number.
func (d *Decoder) Uint() uint64 {
	if !d.want(wireVarint) {
		return 0
	}
	return d.num
}

// UintMax is Uint with an upper bound; over it decoding fails.
func (d *Decoder) UintMax(limit uint64) uint64 {
	v := d.Uint()
	if v > limit {
		d.Fail(ErrTooLong)
		return 0
	}
	return v
}

// Int is the current field as a signed number.
func (d *Decoder) Int() int64 {
	u := d.Uint()
	return int64(u>>1) ^ -int64(u&1)
}

// Bool is the current field as a flag.
func (d *Decoder) Bool() bool { return d.Uint() != 0 }

// Float is the current field as a float64; it is never NaN nor infinite.
func (d *Decoder) Float() float64 {
	if !d.want(wireFixed64) {
		return 0
	}
	f := math.Float64frombits(d.num)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		d.Fail(ErrBadMessage)
		return 0
	}
	return f
}

// Bytes is the current field as at most limit bytes, aliasing the input.
func (d *Decoder) Bytes(limit int) []byte {
	if !d.want(wireBytes) {
		return nil
	}
	if len(d.data) > limit {
		d.Fail(ErrTooLong)
		return nil
	}
	return d.data
}

// String is the current field as a string of at most limit bytes.
func (d *Decoder) String(limit int) string { return string(d.Bytes(limit)) }

// AppendString adds the current field to a list of at most items strings of limit bytes.
func (d *Decoder) AppendString(list []string, items, limit int) []string {
	if len(list) >= items {
		d.Fail(ErrTooLong)
		return list
	}
	return append(list, d.String(limit))
}

// AppendUint adds the current field to a list of at most items numbers.
func (d *Decoder) AppendUint(list []uint64, items int) []uint64 {
	if len(list) >= items {
		d.Fail(ErrTooLong)
		return list
	}
	return append(list, d.Uint())
}

// Message decodes the current field into m.
func (d *Decoder) Message(m Message) {
	if !d.want(wireBytes) {
		return
	}
	if err := Unmarshal(d.data, m); err != nil {
		d.Fail(err)
	}
}
