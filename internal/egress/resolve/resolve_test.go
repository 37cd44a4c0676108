package resolve

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers over UDP and TCP on one port of loopback; answer gets the question and whether it came over TCP,
// and gives the messages to send.
type server struct {
	addr  netip.AddrPort
	asked atomic.Int64
}

func serve(t *testing.T, answer func(q *dnsmessage.Message, tcp bool) []*dnsmessage.Message) *server {
	t.Helper()
	var pc net.PacketConn
	var ln net.Listener
	for try := 0; ; try++ { // until a port is free in both
		var err error
		if pc, err = net.ListenPacket("udp4", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if ln, err = net.Listen("tcp4", pc.LocalAddr().String()); err == nil {
			break
		}
		pc.Close()
		if try > 50 {
			t.Fatal(err)
		}
	}
	s := &server{addr: netip.MustParseAddrPort(pc.LocalAddr().String())}
	var wg sync.WaitGroup
	t.Cleanup(func() { pc.Close(); ln.Close(); wg.Wait() })
	handle := func(b []byte, tcp bool, send func([]byte)) {
		var q dnsmessage.Message
		if q.Unpack(b) != nil {
			return
		}
		s.asked.Add(1)
		for _, m := range answer(&q, tcp) {
			if out, err := m.Pack(); err == nil {
				send(out)
			}
		}
	}
	wg.Go(func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			handle(buf[:n], false, func(b []byte) { _, _ = pc.WriteTo(b, from) })
		}
	})
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err == nil {
				b := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(c, b); err == nil {
					handle(b, true, func(b []byte) { _, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)) })
				}
			}
			c.Close()
		}
	})
	return s
}

func reply(q *dnsmessage.Message, rs ...dnsmessage.Resource) *dnsmessage.Message {
	return &dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true}, Questions: q.Questions, Answers: rs}
}

func a(name, addr string) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: 60}, Body: &dnsmessage.AResource{A: netip.MustParseAddr(addr).As4()}}
}

func cname(name, to string) dnsmessage.Resource {
	return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: 60}, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(to)}}
}

func TestLookup(t *testing.T) {
	one := func(m *dnsmessage.Message) []*dnsmessage.Message { return []*dnsmessage.Message{m} }
	for _, tc := range []struct {
		name   string
		answer func(q *dnsmessage.Message, tcp bool) []*dnsmessage.Message
		want   []string
		err    error
	}{
		{"plain", func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
			return one(reply(q, a("X.test.", "1.2.3.4"), a("x.test.", "1.2.3.5")))
		}, []string{"1.2.3.4", "1.2.3.5"}, nil},
		{"aliases", func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
			return one(reply(q, a("c.test.", "1.2.3.4"), cname("b.test.", "c.test."), cname("x.test.", "B.test.")))
		}, []string{"1.2.3.4"}, nil},
		{"addresses of another name", func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
			return one(reply(q, a("other.test.", "6.6.6.6"), a("x.test.", "1.2.3.4")))
		}, []string{"1.2.3.4"}, nil},
		{"aliases in a circle", func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
			return one(reply(q, cname("x.test.", "y.test."), cname("y.test.", "x.test.")))
		}, nil, ErrNoName},
		{"forgeries first", func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
			wrongID := reply(q, a("x.test.", "6.6.6.6"))
			wrongID.ID++
			wrongName := reply(q, a("x.test.", "6.6.6.6"))
			wrongName.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName("z.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
			query := reply(q, a("x.test.", "6.6.6.6"))
			query.Response = false
			return []*dnsmessage.Message{wrongID, wrongName, query, reply(q, a("x.test.", "1.2.3.4"))}
		}, []string{"1.2.3.4"}, nil},
		{"cut short", func(q *dnsmessage.Message, tcp bool) []*dnsmessage.Message {
			m := reply(q, a("x.test.", "1.2.3.4"))
			if !tcp {
				m.Truncated, m.Answers = true, nil
			}
			return one(m)
		}, []string{"1.2.3.4"}, nil},
		{"no name", func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
			m := reply(q)
			m.RCode = dnsmessage.RCodeNameError
			return one(m)
		}, nil, ErrNoName},
		{"no address", func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message { return one(reply(q)) }, nil, ErrNoName},
		{"failure", func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
			m := reply(q)
			m.RCode = dnsmessage.RCodeServerFailure
			return one(m)
		}, nil, ErrFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, tc.answer)
			got, err := New([]netip.AddrPort{s.addr}).Lookup(t.Context(), "x.test")
			if !errors.Is(err, tc.err) || len(got.Addrs) != len(tc.want) {
				t.Fatalf("%v, %v", got, err)
			}
			for i, w := range tc.want {
				if got.Addrs[i].String() != w {
					t.Errorf("%v, want %v", got.Addrs, tc.want)
				}
			}
			if err == nil && (got.TTL <= 0 || got.TTL > time.Minute) {
				t.Errorf("TTL %v", got.TTL)
			}
		})
	}
}

func TestOneQuestionForMany(t *testing.T) {
	s := serve(t, func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
		time.Sleep(20 * time.Millisecond)
		return []*dnsmessage.Message{reply(q, a("x.test.", "1.2.3.4"))}
	})
	r := New([]netip.AddrPort{s.addr})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := r.Lookup(t.Context(), "x.test"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := r.Lookup(t.Context(), "x.test"); err != nil || s.asked.Load() != 1 {
		t.Errorf("%d questions, %v", s.asked.Load(), err)
	}
}

// The second server answers where the first does not, and a caller that leaves gets no answer.
func TestNextServer(t *testing.T) {
	refuses := serve(t, func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
		m := reply(q)
		m.RCode = dnsmessage.RCodeRefused
		return []*dnsmessage.Message{m}
	})
	works := serve(t, func(q *dnsmessage.Message, _ bool) []*dnsmessage.Message {
		return []*dnsmessage.Message{reply(q, a("x.test.", "1.2.3.4"))}
	})
	r := New([]netip.AddrPort{refuses.addr, works.addr})
	if got, err := r.Lookup(t.Context(), "x.test"); err != nil || len(got.Addrs) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New([]netip.AddrPort{works.addr}).Lookup(gone, "y.test"); err == nil {
		t.Error("a caller that has left gets an answer")
	}
	time.Sleep(50 * time.Millisecond) // the question goes on alone
}

func TestSystemServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("# x\nsearch a.test\nnameserver 10.0.0.1\nnameserver fd00::1\nnameserver bad\noptions x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := system(path)
	if len(got) != 2 || got[0].String() != "10.0.0.1:53" || got[1].String() != "[fd00::1]:53" {
		t.Errorf("%v", got)
	}
}

func FuzzAnswer(f *testing.F) {
	q := &dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("x.test."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	for _, m := range []*dnsmessage.Message{reply(q, a("x.test.", "1.2.3.4")), reply(q, cname("x.test.", "y.test."), a("y.test.", "1.2.3.4"))} {
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := match(q, b)
		if err != nil {
			return
		}
		e := New([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}).read(key{"x.test", dnsmessage.TypeA}, m)
		if e.err == nil && (len(e.addrs) == 0 || len(e.addrs) > maxAddrs) {
			t.Fatalf("%d addresses", len(e.addrs))
		}
		for _, r := range m.Answers {
			if h, ok := r.Body.(*dnsmessage.HTTPSResource); ok {
				configIDs(h.SVCBResource)
			}
		}
	})
}
