package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"strconv"
	"unicode/utf8"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

const (
	defaultRead = 64 << 10
	maxRead     = 1 << 20
)

type readIn struct {
	Session string `json:"session" jsonschema:"id of the session"`
	Path    string `json:"path" jsonschema:"absolute, or below /workspace"`
	Offset  int64  `json:"offset,omitempty" jsonschema:"first byte to read"`
	Length  int64  `json:"length,omitempty" jsonschema:"most bytes to read; default 65536, at most 1048576"`
	User    string `json:"user,omitempty" jsonschema:"who reads, such as root; default the session's user"`
}

type readOut struct {
	failure
	Content    *string `json:"content,omitempty" jsonschema:"what was read"`
	Encoding   string  `json:"encoding,omitempty" jsonschema:"of content: utf-8 or base64"`
	Bytes      int64   `json:"bytes,omitempty" jsonschema:"bytes that content stands for"`
	NextOffset int64   `json:"next_offset,omitempty" jsonschema:"where to go on reading, when more is left"`
}

func (s *Server) read(ctx context.Context, cn *connection, in readIn) (readOut, error) {
	length := in.Length
	switch {
	case in.Path == "":
		return readOut{}, invalid("path", "it is empty", "name a file")
	case in.Offset < 0 || length < 0 || length > maxRead:
		return readOut{}, invalid("length", "offset or length is out of range", "read at most 1048576 bytes at once")
	case length == 0:
		length = defaultRead
	}
	session := cn.c.Session(in.Session)
	if in.Offset > 0 { // a range that begins behind the end would be an error
		info, err := session.Stat(ctx, in.Path, true)
		if err != nil {
			return readOut{}, err
		}
		if in.Offset >= info.GetSize() {
			nothing := ""
			return readOut{Content: &nothing, Encoding: "utf-8"}, nil
		}
	}
	o := dsec.ReadOptions{User: in.User, Offset: in.Offset}
	if in.Offset > 0 { // from the begin it is cut off here: the files of /proc have no ranges
		o.Length = length + 1
	}
	r, err := session.ReadFile(ctx, in.Path, o)
	if err != nil {
		return readOut{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, length+1))
	if err != nil {
		return readOut{}, dsec.AsError(err)
	}
	more := int64(len(data)) > length
	if more {
		data = whole(data[:length])
	}
	out := readOut{Encoding: "utf-8", Bytes: int64(len(data))}
	content := string(data)
	if !utf8.Valid(data) {
		out.Encoding, content = "base64", base64.StdEncoding.EncodeToString(data)
	}
	out.Content = &content
	if more {
		out.NextOffset = in.Offset + out.Bytes
	}
	return out, nil
}

// whole cuts off a character of which only a part was read, unless that is all there is.
func whole(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i < len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

type writeIn struct {
	Session  string `json:"session" jsonschema:"id of the session"`
	Path     string `json:"path" jsonschema:"absolute, or below /workspace"`
	Content  string `json:"content" jsonschema:"what to write"`
	Encoding string `json:"encoding,omitempty" jsonschema:"of content: utf-8 (default) or base64"`
	Append   bool   `json:"append,omitempty" jsonschema:"add to the file instead of replacing it"`
	Mode     string `json:"mode,omitempty" jsonschema:"permissions of a new file in octal, such as 0755"`
	User     string `json:"user,omitempty" jsonschema:"who writes, such as root; default the session's user"`
}

type writeOut struct {
	failure
	Path  string `json:"path,omitempty"`
	Bytes int64  `json:"bytes,omitempty" jsonschema:"size of the file now"`
}

func (s *Server) write(ctx context.Context, cn *connection, in writeIn) (writeOut, error) {
	o := dsec.WriteOptions{User: in.User, Append: in.Append, Parents: true}
	if in.Path == "" {
		return writeOut{}, invalid("path", "it is empty", "name a file")
	}
	data := []byte(in.Content)
	switch in.Encoding {
	case "", "utf-8":
	case "base64":
		var err error
		if data, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return writeOut{}, invalid("content", "it is not base64: "+err.Error(), "encode it, or leave encoding out")
		}
	default:
		return writeOut{}, invalid("encoding "+in.Encoding, "it is unknown", "use utf-8 or base64")
	}
	if in.Mode != "" {
		mode, err := strconv.ParseUint(in.Mode, 8, 12)
		if err != nil || mode == 0 {
			return writeOut{}, invalid("mode "+in.Mode, "it is no file mode", "write it in octal, such as 0755")
		}
		o.Mode = uint32(mode)
	}
	info, err := cn.c.Session(in.Session).WriteFile(ctx, in.Path, bytes.NewReader(data), o)
	if err != nil {
		return writeOut{}, err
	}
	return writeOut{Path: in.Path, Bytes: info.GetSize()}, nil
}
