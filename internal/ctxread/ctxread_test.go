package ctxread_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/dsec-platform/dsec/internal/ctxread"
)

func TestReaderEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := ctxread.Reader(ctx, strings.NewReader("begun and never read"))
	p := make([]byte, 5)
	if n, err := io.ReadFull(r, p); err != nil || string(p[:n]) != "begun" {
		t.Fatalf("%q %v", p, err)
	}
	cancel()
	if n, err := r.Read(p); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d bytes, %v", n, err)
	}
}
