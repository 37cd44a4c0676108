package api

import "math/rand/v2"

// requestID takes the client's id, if it is one that can stand in a log, or makes one.
func requestID(given string) string {
	if n := len(given); n > 0 && n <= 64 {
		ok := true
		for i := 0; i < n && ok; i++ {
			ok = isWord(given[i]) || given[i] == '.'
		}
		if ok {
			return given
		}
	}
	return randomID()
}

// randomID makes 24 characters [0-9a-v] that no other call makes.
func randomID() string {
	const digits = "0123456789abcdefghijklmnopqrstuv"
	var b [24]byte
	for i := 0; i < len(b); i += 12 {
		r := rand.Uint64()
		for j := range 12 {
			b[i+j] = digits[r&31]
			r >>= 5
		}
	}
	return string(b[:])
}

// isWord tells whether c is of [A-Za-z0-9_-].
func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
