package session

import "time"

// IDLen is the length of a session's id.
const IDLen = 26

// alphabet sorts like the numbers it stands for, and leaves out i, l, o and u.
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// NewID makes a public session id: "s", 11 characters of microseconds, 14 of
// entropy. Ids sort by time, are DNS labels (RFC 1035: a letter first), and are not capabilities.
// A caller that wants an order within a batch advances t by a microsecond an item.
func NewID(t time.Time, entropy [9]byte) string {
	var b [IDLen]byte
	b[0] = 's'
	us := uint64(t.UnixMicro())
	for i := 11; i >= 1; i-- {
		b[i] = alphabet[us&31]
		us >>= 5
	}
	var acc uint32
	bits, next := 0, 0
	for i := 12; i < IDLen; i++ {
		if bits < 5 {
			acc = acc<<8 | uint32(entropy[next])
			next++
			bits += 8
		}
		bits -= 5
		b[i] = alphabet[acc>>bits&31]
	}
	return string(b[:])
}

// ValidID tells whether s has the form of an id.
func ValidID(s string) bool {
	if len(s) != IDLen || s[0] != 's' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
