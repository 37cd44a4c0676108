package envd

import (
	"context"
	"io"
	"strings"

	"connectrpc.com/connect/v2/connectproto"

	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
)

// codec reads JSON strictly: a field that is not known here would be accepted and ignored.
type codec struct{ *connectproto.JSONCodec }

func newCodec() codec {
	c := connectproto.NewJSONCodec()
	c.UnmarshalOptions.DiscardUnknown = false
	return codec{c}
}

// UnmarshalRead decodes and says what it refuses, but no value: it may be a secret.
func (c codec) UnmarshalRead(ctx context.Context, src io.Reader, msg any) error {
	err := c.JSONCodec.UnmarshalRead(ctx, src, msg)
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	if _, name, ok := strings.Cut(text, "unknown field "); ok {
		return errdefs.Userf(errdefs.Unsupported, "field "+e2b.Clip(strings.Trim(name, `"`)), "leave it out", "this server does not know it")
	}
	return errdefs.Userf(errdefs.InvalidArgument, "request body", "send the JSON form of the message", "it cannot be read")
}
