// Package hello reads the first message of a TLS client, however it is split over records and
// packets, for the two things that egress judges: the server's name and whether the hello hides
// another one (ECH). It trusts no byte and changes none.
package hello

import (
	"encoding/binary"
	"errors"
)

// Hello is what a ClientHello says.
type Hello struct {
	// Name is the server name in the clear, the outer one where ECH is used; "" when it has none.
	Name string
	// ALPN are the offered protocols.
	ALPN []string
	// ECH tells that extension 0xfe0d is there as a client's outer hello; browsers send one with random
	// content (GREASE) too. ConfigID is the key that it claims to be encrypted for.
	ECH      bool
	ConfigID byte
}

var (
	// ErrMore asks for more bytes.
	ErrMore = errors.New("hello: incomplete")
	// ErrNotTLS says that the bytes are not a TLS handshake.
	ErrNotTLS = errors.New("hello: not TLS")
	// ErrMalformed says that they began as one, and are none that a server would take.
	ErrMalformed = errors.New("hello: malformed")
)

// Max bounds the bytes that a hello may take, record headers included.
const Max = 64 << 10

const (
	recordHandshake = 22
	clientHello     = 1
	extServerName   = 0
	extALPN         = 16
	extECH          = 0xfe0d
	maxRecord       = 1<<14 + 256
)

// Parse reads the hello at the start of b, which may go on after it.
func Parse(b []byte) (Hello, error) { return new(Parser).Parse(b) }

// Parser reads one hello that comes in pieces. What it has read it does not read again, so that a
// client that sends single bytes costs no more than one that does not.
type Parser struct {
	off    int // of the first record that was not whole
	joined []byte
}

// Parse reads on; b is everything that came so far.
func (p *Parser) Parse(b []byte) (Hello, error) {
	msg, err := p.handshake(b)
	if err != nil {
		return Hello{}, err
	}
	return parse(msg)
}

// handshake joins the payloads of whole records until the first message is whole.
func (p *Parser) handshake(b []byte) ([]byte, error) {
	for {
		rest := b[p.off:]
		if len(rest) > 0 && rest[0] != recordHandshake {
			if p.off == 0 {
				return nil, ErrNotTLS
			}
			return nil, ErrMalformed
		}
		if len(rest) > 1 && rest[1] != 3 {
			return nil, ErrNotTLS
		}
		if len(rest) < 5 {
			return nil, more(b)
		}
		n := int(binary.BigEndian.Uint16(rest[3:]))
		if n == 0 || n > maxRecord || p.off == 0 && len(rest) > 5 && rest[5] != clientHello {
			return nil, ErrMalformed
		}
		if len(rest) < 5+n {
			return nil, more(b)
		}
		p.joined = append(p.joined, rest[5:5+n]...)
		p.off += 5 + n
		if len(p.joined) < 4 {
			continue
		}
		size := int(p.joined[1])<<16 | int(p.joined[2])<<8 | int(p.joined[3])
		if size > Max {
			return nil, ErrMalformed
		}
		if len(p.joined) >= 4+size {
			return p.joined[4 : 4+size], nil
		}
	}
}

func more(b []byte) error {
	if len(b) >= Max {
		return ErrMalformed
	}
	return ErrMore
}

// cursor reads length-prefixed fields; bad stays true after the first that is short.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) u8() int {
	if v := c.take(1); v != nil {
		return int(v[0])
	}
	return 0
}

func (c *cursor) u16() int {
	if v := c.take(2); v != nil {
		return int(binary.BigEndian.Uint16(v))
	}
	return 0
}

func parse(msg []byte) (Hello, error) {
	c := &cursor{b: msg}
	c.take(2 + 32)  // version, random
	c.take(c.u8())  // session id
	c.take(c.u16()) // cipher suites
	c.take(c.u8())  // compression
	if !c.bad && len(c.b) == 0 {
		return Hello{}, nil // no extensions: a client of long ago
	}
	exts := &cursor{b: c.take(c.u16())}
	if c.bad || len(c.b) != 0 {
		return Hello{}, ErrMalformed
	}
	var h Hello
	seen := map[int]bool{}
	for len(exts.b) > 0 && !exts.bad {
		kind := exts.u16()
		body := &cursor{b: exts.take(exts.u16())}
		if exts.bad || seen[kind] { // a second extension of a kind would be read by another parser
			return Hello{}, ErrMalformed
		}
		seen[kind] = true
		switch kind {
		case extServerName:
			h.serverName(body)
		case extALPN:
			h.alpn(body)
		case extECH:
			h.ech(body)
		}
		if body.bad {
			return Hello{}, ErrMalformed
		}
	}
	if exts.bad {
		return Hello{}, ErrMalformed
	}
	return h, nil
}

func (h *Hello) serverName(c *cursor) {
	list := &cursor{b: c.take(c.u16())}
	n := 0
	for len(list.b) > 0 && !list.bad {
		kind := list.u8()
		name := list.take(list.u16())
		if kind == 0 {
			h.Name = string(name)
			n++
		}
	}
	c.bad = c.bad || list.bad || n > 1 || len(c.b) != 0
}

func (h *Hello) alpn(c *cursor) {
	list := &cursor{b: c.take(c.u16())}
	for len(list.b) > 0 && !list.bad {
		h.ALPN = append(h.ALPN, string(list.take(list.u8())))
	}
	c.bad = c.bad || list.bad || len(c.b) != 0
}

func (h *Hello) ech(c *cursor) {
	if c.u8() != 0 { // an inner hello's mark has no business in the clear
		c.bad = true
		return
	}
	c.take(4) // KDF, AEAD
	h.ConfigID = byte(c.u8())
	c.take(c.u16()) // enc
	c.take(c.u16()) // payload
	h.ECH = !c.bad
}
