package mux

import (
	"io"
	"sync"
	"testing"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// TestCreditAfterTheEnd: a reader's credits and its reset may reach a sender that has ended the stream.
func TestCreditAfterTheEnd(t *testing.T) {
	c, server := pair(t, func(s *Stream, _ []byte) {
		_, _ = s.Write(make([]byte, 2*Window))
		_ = s.CloseSend()
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				s, err := c.Open(guestproto.KindFileRead, nil, true)
				if err != nil {
					t.Error(err)
					return
				}
				if n, err := io.Copy(io.Discard, struct{ io.Reader }{s}); n != 2*Window || err != nil {
					t.Errorf("%d bytes, %v; server: %v", n, err, server.Err())
					return
				}
			}
		})
	}
	wg.Wait()
}
