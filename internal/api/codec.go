package api

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// jsonCodec reads JSON strictly and writes the field names of the proto files,
// which are those of spec files too.
type jsonCodec struct{ *connectproto.JSONCodec }

func newJSONCodec() jsonCodec {
	c := connectproto.NewJSONCodec()
	c.MarshalOptions.UseProtoNames = true
	c.UnmarshalOptions.DiscardUnknown = false
	return jsonCodec{c}
}

// UnmarshalRead decodes and explains what it refuses.
func (c jsonCodec) UnmarshalRead(ctx context.Context, src io.Reader, msg any) error {
	err := c.JSONCodec.UnmarshalRead(ctx, src, msg)
	if err == nil {
		return nil
	}
	// The library varies its white space so that nobody parses it; the name is quoted.
	text := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	text = withoutValue(strings.TrimPrefix(text, "proto: "))
	if pos, rest, ok := strings.Cut(text, "unknown field "); ok {
		name := strings.Trim(rest, `"`)
		return errdefs.Userf(errdefs.InvalidArgument, "field "+clip(name), "remove it or correct its name; the fields are those of proto/dsec/v1", "%sis not a field of %s", pos, fullName(msg))
	}
	return errdefs.Userf(errdefs.InvalidArgument, "request body", "send the JSON form of "+fullName(msg), "%s", clip(text))
}

// withoutValue leaves out what the library says of a wrong value: it may be a secret.
func withoutValue(text string) string {
	for _, mark := range []string{"unexpected token", "invalid value"} {
		i := strings.Index(text, mark)
		if i < 0 {
			continue
		}
		if what, _, ok := strings.Cut(text[i:], ": "); ok && strings.Contains(what, " for ") {
			return text[:i] + what
		}
		return text[:i] + mark
	}
	return text
}

// binaryCodec refuses unknown fields too.
type binaryCodec struct{ *connectproto.BinaryCodec }

func newBinaryCodec() binaryCodec { return binaryCodec{connectproto.NewBinaryCodec()} }

// UnmarshalRead decodes and explains what it refuses.
func (c binaryCodec) UnmarshalRead(ctx context.Context, src io.Reader, msg any) error {
	if err := c.BinaryCodec.UnmarshalRead(ctx, src, msg); err != nil {
		return errdefs.Userf(errdefs.InvalidArgument, "request body", "send the binary form of "+fullName(msg), "it cannot be decoded")
	}
	if m, ok := msg.(proto.Message); ok {
		return known(m.ProtoReflect())
	}
	return nil
}

// known refuses a message with unknown fields in it, at any depth.
func known(m protoreflect.Message) error {
	if u := m.GetUnknown(); len(u) > 0 {
		num, _, _ := protowire.ConsumeTag(u)
		return errdefs.Userf(errdefs.InvalidArgument, fmt.Sprintf("field %d", num), "update the server, or use a client of its version", "is not a field of %s", m.Descriptor().FullName())
	}
	for _, fd := range nested(m.Descriptor()) {
		if !m.Has(fd) {
			continue
		}
		v := m.Get(fd)
		if !fd.IsList() {
			if err := known(v.Message()); err != nil {
				return err
			}
			continue
		}
		for i := range v.List().Len() {
			if err := known(v.List().Get(i).Message()); err != nil {
				return err
			}
		}
	}
	return nil
}

var nestedFields sync.Map // protoreflect.MessageDescriptor → []protoreflect.FieldDescriptor

// nested gives the fields of a message that are messages. Maps of this wire hold scalars.
func nested(d protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if fds, ok := nestedFields.Load(d); ok {
		return fds.([]protoreflect.FieldDescriptor)
	}
	var fds []protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		if fd := d.Fields().Get(i); fd.Message() != nil && !fd.IsMap() {
			fds = append(fds, fd)
		}
	}
	nestedFields.Store(d, fds)
	return fds
}

func fullName(msg any) string {
	if m, ok := msg.(proto.Message); ok {
		return string(m.ProtoReflect().Descriptor().FullName())
	}
	return "the request"
}
