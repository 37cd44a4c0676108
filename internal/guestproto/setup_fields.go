package guestproto

import "encoding/binary"

// fields writes tag, 32-bit length, value triples. The setup messages are sent
// once or twice in a box's life: being easy to read in a dump beats being small.
type fields struct{ buf []byte }

func (w *fields) bytes(tag byte, v []byte) {
	w.buf = append(w.buf, tag)
	w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(len(v)))
	w.buf = append(w.buf, v...)
}

func (w *fields) string(tag byte, v string) {
	if v != "" {
		w.bytes(tag, []byte(v))
	}
}

func (w *fields) strings(tag byte, vs []string) {
	for _, v := range vs {
		w.bytes(tag, []byte(v))
	}
}

func (w *fields) uint(tag byte, v uint64) {
	if v != 0 {
		w.bytes(tag, binary.LittleEndian.AppendUint64(nil, v))
	}
}

func (w *fields) flag(tag byte, v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	w.bytes(tag, []byte{b})
}

func eachField(b []byte, fn func(tag byte, v []byte) error) error {
	for len(b) > 0 {
		if len(b) < 5 {
			return ErrMalformed
		}
		tag, n := b[0], uint64(binary.LittleEndian.Uint32(b[1:]))
		b = b[5:]
		if n > uint64(len(b)) {
			return ErrMalformed
		}
		if err := fn(tag, b[:n:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func fieldUint(v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, ErrMalformed
	}
	return binary.LittleEndian.Uint64(v), nil
}

func fieldFlag(v []byte) (bool, error) {
	if len(v) != 1 || v[0] > 1 {
		return false, ErrMalformed
	}
	return v[0] == 1, nil
}
