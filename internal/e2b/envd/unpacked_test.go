package envd

import (
	"bytes"
	"io"
	"testing"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// TestUnpackedIsBounded: what a compressed body becomes ends at its limit, wherever the bytes go.
func TestUnpackedIsBounded(t *testing.T) {
	for size, want := range map[int]errdefs.Reason{100: "", 101: errdefs.TooLarge} {
		_, err := io.Copy(io.Discard, &unpacked{bytes.NewReader(make([]byte, size)), 100})
		if (err == nil) != (want == "") || err != nil && errdefs.From(err).Reason != want {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
