package envd

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"testing"

	"connectrpc.com/connect/v2"

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

// TestClientsFaultsAreNotLogged: only the platform's own failures are for the operator's eyes.
func TestClientsFaultsAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	h := &Handler{log: slog.New(slog.NewTextHandler(&out, nil))}
	for _, code := range []connect.Code{connect.CodeResourceExhausted, connect.CodeInvalidArgument, connect.CodeUnimplemented} {
		h.logFailure(t.Context(), "x", connect.NewError(code, "the client's"))
	}
	if out.Len() > 0 {
		t.Errorf("%s", &out)
	}
	h.logFailure(t.Context(), "x", errors.New("unforeseen"))
	if out.Len() == 0 {
		t.Error("a failure of the platform is not logged")
	}
}
