package mux

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// A frame is a 9-byte header and a payload: length of the payload (uint32,
// little endian), type (with flagEnd: the sender's last frame of the stream),
// stream id (uint32, 0 for frames of the connection itself).
const (
	headerSize = 9
	flagEnd    = 0x80
)

const (
	frameHello  = 1 // Hello; first frame of each side
	frameOpen   = 2 // openBody; from the client only
	frameMsg    = 3 // a Message
	frameData   = 4 // raw bytes
	frameCredit = 5 // 4 bytes: what the receiver has taken
	frameReset  = 6 // WireError or nothing; ends both directions
	framePing   = 7 // 8 bytes; from the client only
	framePong   = 8 // the same 8 bytes
)

// MaxPayload bounds a message or data frame; only OPEN may be as large as guestproto.MaxFrame.
const MaxPayload = 64 << 10

// Window is what a side may send on a stream before the other has taken any of
// it; a frame costs its payload plus frameCost, so that empty frames are not free.
const (
	Window    = 256 << 10
	frameCost = 32
)

// ErrProtocol is in the chain of every error that the peer's bytes caused.
var ErrProtocol = errors.New("guest protocol broken")

// protocolError is a break with its particulars. It does without fmt: the guest
// links this package.
type protocolError string

func (e protocolError) Error() string { return ErrProtocol.Error() + ": " + string(e) }
func (e protocolError) Unwrap() error { return ErrProtocol }

// broken makes a protocol break of strings, numbers and errors.
func broken(parts ...any) error {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b.WriteString(p)
		case error:
			b.WriteString(p.Error())
		case uint32:
			b.WriteString(strconv.FormatUint(uint64(p), 10))
		case byte:
			b.WriteString(strconv.Itoa(int(p)))
		case int:
			b.WriteString(strconv.Itoa(p))
		}
	}
	return protocolError(b.String())
}

type header struct {
	size int
	typ  byte
	end  bool
	id   uint32
}

func putHeader(b []byte, typ byte, end bool, id uint32, size int) {
	binary.LittleEndian.PutUint32(b, uint32(size))
	if end {
		typ |= flagEnd
	}
	b[4] = typ
	binary.LittleEndian.PutUint32(b[5:], id)
}

// readHeader reads and checks the next frame's header.
func readHeader(r *bufio.Reader) (header, error) {
	b, err := r.Peek(headerSize)
	if err != nil {
		if err == io.EOF && len(b) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return header{}, err
	}
	h := header{typ: b[4] &^ flagEnd, end: b[4]&flagEnd != 0, id: binary.LittleEndian.Uint32(b[5:])}
	size := binary.LittleEndian.Uint32(b)
	limit := uint32(MaxPayload)
	switch h.typ {
	case frameOpen:
		limit = guestproto.MaxFrame
	case frameCredit:
		limit = 4
	case framePing, framePong:
		limit = 8
	}
	if size > limit {
		return header{}, broken("frame type ", h.typ, " of ", size, " bytes")
	}
	h.size = int(size)
	_, err = r.Discard(headerSize)
	return h, err
}

// openBody is the payload of an OPEN frame.
type openBody struct {
	kind guestproto.Kind
	body []byte
}

func (o *openBody) EncodeFields(e *guestproto.Encoder) {
	e.Uint(1, uint64(o.kind))
	e.Bytes(2, o.body)
}

func (o *openBody) DecodeFields(d *guestproto.Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			o.kind = guestproto.Kind(d.UintMax(1 << 16))
		case 2:
			o.body = d.Bytes(guestproto.MaxFrame)
		}
	}
}
