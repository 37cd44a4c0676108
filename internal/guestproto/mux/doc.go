// Package mux carries the guest protocol's messages: frames over one byte
// stream, many concurrent streams with credit-based flow control, and a bound on
// everything that a peer can make this side keep. The daemon is the client of a
// guest, and the guest of its file worker.
package mux
