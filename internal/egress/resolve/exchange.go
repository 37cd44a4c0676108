package resolve

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

var errMismatch = errors.New("the message does not answer the question")

// exchange asks one server over UDP, and over TCP when the answer is cut short. Every question has
// a socket of its own, so that its port is one more thing that a forger must guess.
func exchange(ctx context.Context, server netip.AddrPort, k key) (*dnsmessage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	name, err := dnsmessage.NewName(k.name + ".")
	if err != nil {
		return nil, err
	}
	var id [2]byte
	_, _ = rand.Read(id[:])
	q := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: binary.BigEndian.Uint16(id[:]), RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: k.typ, Class: dnsmessage.ClassINET}},
	}
	out, err := q.Pack()
	if err != nil {
		return nil, err
	}
	m, err := overUDP(ctx, server, &q, out)
	if err != nil || !m.Truncated {
		return m, err
	}
	return overTCP(ctx, server, &q, out)
}

func dial(ctx context.Context, network string, server netip.AddrPort) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	if d, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(d)
	}
	return conn, nil
}

func overUDP(ctx context.Context, server netip.AddrPort, q *dnsmessage.Message, out []byte) (*dnsmessage.Message, error) {
	conn, err := dial(ctx, "udp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	sent := time.Now()
	if _, err := conn.Write(out); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for time.Since(sent) < tryTimeout {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		// What does not match may be a forger's: the true answer may still come.
		if m, err := match(q, buf[:n]); err == nil {
			return m, nil
		}
	}
	return nil, errMismatch
}

func overTCP(ctx context.Context, server netip.AddrPort, q *dnsmessage.Message, out []byte) (*dnsmessage.Message, error) {
	conn, err := dial(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	buf := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, buf); err != nil {
		return nil, err
	}
	return match(q, buf)
}

// match reads a message and tells whether it answers q.
func match(q *dnsmessage.Message, b []byte) (*dnsmessage.Message, error) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil {
		return nil, err
	}
	m := &dnsmessage.Message{Header: h}
	if m.Questions, err = p.AllQuestions(); err != nil {
		return nil, err
	}
	want := q.Questions[0]
	if !h.Response || h.ID != q.ID || len(m.Questions) != 1 || m.Questions[0].Type != want.Type || m.Questions[0].Class != want.Class ||
		!same(m.Questions[0].Name.String(), fold(want.Name.String())) {
		return nil, errMismatch
	}
	if h.Truncated {
		return m, nil
	}
	if m.Answers, err = p.AllAnswers(); err != nil {
		return nil, err
	}
	return m, nil
}

// configIDs reads the ids of an ECHConfigList, which a service binding carries.
func configIDs(r dnsmessage.SVCBResource) []byte {
	list, ok := r.GetParam(dnsmessage.SVCParamECH)
	if !ok || len(list) < 2 {
		return nil
	}
	var out []byte
	for list = list[2:]; len(list) >= 4; {
		version, n := binary.BigEndian.Uint16(list), int(binary.BigEndian.Uint16(list[2:]))
		if len(list) < 4+n {
			break
		}
		if version == 0xfe0d && n > 0 {
			out = append(out, list[4])
		}
		list = list[4+n:]
	}
	return out
}
