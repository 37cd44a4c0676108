// Package dns is the wire of the box's resolver: it reads one question, and writes the four
// answers that a box can get. It does no I/O.
package dns

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Query is a question that may be judged.
type Query struct {
	id   uint16
	rd   bool
	q    dnsmessage.Question
	Name string // as asked, without the final dot
	Type string // "A", "AAAA", "TXT", "HTTPS", …
}

// ErrMalformed says that a message is no question that a resolver answers.
var ErrMalformed = errors.New("dns: malformed query")

// maxAddrs keeps every answer below 512 bytes, the least that every client takes.
const maxAddrs = 12

// ParseQuery reads a query: one question of class IN, nothing answered yet.
func ParseQuery(b []byte) (Query, error) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil || h.Response || h.OpCode != 0 {
		return Query{}, ErrMalformed
	}
	q, err := p.Question()
	if err != nil || q.Class != dnsmessage.ClassINET {
		return Query{}, ErrMalformed
	}
	if _, err := p.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		return Query{}, ErrMalformed
	}
	name := q.Name.String()
	if len(name) < 2 || name[len(name)-1] != '.' {
		return Query{}, ErrMalformed // the root, or a name that cannot be compared
	}
	typ := q.Type.String()
	if len(typ) > 4 && typ[:4] == "Type" {
		typ = typ[4:]
	}
	return Query{id: h.ID, rd: h.RecursionDesired, q: q, Name: name[:len(name)-1], Type: typ}, nil
}

// WantsAddrs tells whether the question is for IPv4 addresses.
func (q Query) WantsAddrs() bool { return q.q.Type == dnsmessage.TypeA }

// Answer gives addresses.
func (q Query) Answer(addrs []netip.Addr, ttl time.Duration) []byte {
	return q.reply(dnsmessage.RCodeSuccess, addrs, ttl)
}

// NoData says that the name exists and has nothing of the type.
func (q Query) NoData() []byte { return q.reply(dnsmessage.RCodeSuccess, nil, 0) }

// NoName says that the name does not exist: programs give up at once.
func (q Query) NoName() []byte { return q.reply(dnsmessage.RCodeNameError, nil, 0) }

// Failed says that the resolver could not find out.
func (q Query) Failed() []byte { return q.reply(dnsmessage.RCodeServerFailure, nil, 0) }

func (q Query) reply(code dnsmessage.RCode, addrs []netip.Addr, ttl time.Duration) []byte {
	h := dnsmessage.Header{ID: q.id, Response: true, RecursionDesired: q.rd, RecursionAvailable: true, RCode: code}
	b := dnsmessage.NewBuilder(make([]byte, 0, 512), h)
	b.EnableCompression()
	// The question was parsed from a message, so that it packs; errors of the builder cannot happen.
	_ = b.StartQuestions()
	_ = b.Question(q.q)
	_ = b.StartAnswers()
	for _, a := range addrs[:min(len(addrs), maxAddrs)] {
		_ = b.AResource(dnsmessage.ResourceHeader{Name: q.q.Name, Class: dnsmessage.ClassINET, TTL: uint32(ttl / time.Second)}, dnsmessage.AResource{A: a.As4()})
	}
	out, err := b.Finish()
	if err != nil {
		return nil
	}
	return out
}
