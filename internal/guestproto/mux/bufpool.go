package mux

import "sync"

// bufSize holds a data chunk with its header; larger frames are rare.
const bufSize = dataChunk + headerSize

var bufs = sync.Pool{New: func() any { return new([bufSize]byte) }}

// getBuf gives n bytes with any content. A pooled buffer is at most twice as large
// as what it holds: credit counts the latter, and the peer chooses it.
func getBuf(n int) []byte {
	if n < bufSize/2 || n > bufSize {
		return make([]byte, n)
	}
	return bufs.Get().(*[bufSize]byte)[:n]
}

// putBuf takes back what getBuf gave; nobody may use it any more.
func putBuf(b []byte) {
	if cap(b) == bufSize {
		bufs.Put((*[bufSize]byte)(b[:bufSize]))
	}
}
