package uplink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/egresstest"
	"github.com/dsec-platform/dsec/internal/egress/link"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// quick is far above what a refusal takes (0.1 to 0.5 ms on a quiet machine) and far below any time-out.
const quick = 250 * time.Millisecond

// refusedUDP sends a datagram and waits for the error.
func (b *testBox) refusedUDP(addr string) error {
	c, err := b.dial("udp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte("\xc0\x00\x00\x00\x01 quic")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 100))
	return err
}

// ping sends an ICMP echo through a raw socket and gives the type and code of what comes back.
func (b *testBox) ping(addr string, proto int) (typ, code byte, err error) {
	err = b.Do(func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, proto)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		answers, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		if err != nil {
			return err
		}
		defer unix.Close(answers)
		if err := unix.SetsockoptTimeval(answers, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
			return err
		}
		msg := []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1}
		if err := unix.Sendto(s, msg, 0, &unix.SockaddrInet4{Addr: netip.MustParseAddr(addr).As4()}); err != nil {
			return err
		}
		buf := make([]byte, 200)
		n, _, err := unix.Recvfrom(answers, buf, 0)
		if err == nil && n >= 22 {
			typ, code = buf[20], buf[21]
		}
		return err
	})
	return typ, code, err
}

// frame sends a raw Ethernet frame.
func (b *testBox) frame(etherType uint16, payload []byte) error {
	return b.Do(func() error {
		s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		ifi, err := net.InterfaceByName(link.Device)
		if err != nil {
			return err
		}
		f := append(append([]byte("\x02\x64\x73\x65\x63\x02"), []byte(link.BoxMAC())...), byte(etherType>>8), byte(etherType))
		return unix.Sendto(s, append(f, payload...), 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index})
	})
}

// packet is an IPv4 packet from src with a protocol.
func packet(src, dst string, proto byte) []byte {
	ip := make([]byte, 28)
	ip[0], ip[8], ip[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[12:], netip.MustParseAddr(src).AsSlice())
	copy(ip[16:], netip.MustParseAddr(dst).AsSlice())
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	return ip
}

// find waits for a decision.
func (w *world) find(what string, ok func(egress.Decision) bool) egress.Decision {
	w.t.Helper()
	var all []egress.Decision
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		all = append(all, w.Sink.Take()...)
		if i := slices.IndexFunc(all, ok); i >= 0 {
			return all[i]
		}
	}
	w.t.Fatalf("no record of %s in %+v", what, all)
	return egress.Decision{}
}

func TestDenyList(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("good.test", egresstest.GoodAddr)
	w.DNS.Set("evil.test", egresstest.EvilAddr)
	w.Handle(egresstest.GoodAddr+":443", func(net.Conn) {})
	w.Handle(egresstest.EvilAddr+":443", func(net.Conn) {})
	w.Handle(egresstest.ServiceAddr+":80", func(net.Conn) {})
	w.Handle(egresstest.MetadataAddr+":80", func(net.Conn) {})
	b := w.attach(whitelist(t, []string{"good.test", "*.wild.test"}))
	b.must("good.test")
	w.DNS.Asked()
	w.Sink.Take()
	before := w.Uplink()

	refusedTCP := func(addr string) func() error {
		return func() error {
			c, err := b.dial("tcp4", addr)
			if err == nil {
				c.Close()
				return errors.New("connected")
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		}
	}
	refusedUDP := func(addr string) func() error {
		return func() error {
			if err := b.refusedUDP(addr); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		}
	}
	noName := func(network, server, name string) func() error {
		return func() error {
			a, err := b.lookupOver(network, server, name)
			if !notFound(err) {
				return fmt.Errorf("%v, %w", a, err)
			}
			return nil
		}
	}
	prohibited := func(addr string, proto int) func() error {
		return func() error {
			typ, code, err := b.ping(addr, proto)
			if err == nil && (typ != 3 || code != 13) {
				err = fmt.Errorf("ICMP %d/%d", typ, code)
			}
			return err
		}
	}
	own := link.DNSAddr.String() + ":53"
	for _, tc := range []struct {
		name   string
		try    func() error
		reason policy.Reason
	}{
		{"name that is not allowed", noName("udp", own, "evil.test"), policy.NameNotAllowed},
		{"name that is not allowed, over TCP", noName("tcp", own, "evil.test"), policy.NameNotAllowed},
		{"tunnel in names", noName("udp", own, "c2VjcmV0LWRhdGE.tunnel.evil.test"), policy.NameNotAllowed},
		{"TXT of a name that is not allowed", func() error {
			r := &net.Resolver{PreferGo: true, Dial: b.resolverDial}
			txt, err := r.LookupTXT(t.Context(), "tunnel.evil.test.")
			if !notFound(err) {
				return fmt.Errorf("%v, %w", txt, err)
			}
			return nil
		}, policy.NameNotAllowed},
		{"another name server, UDP", refusedUDP("8.8.8.8:53"), policy.UDPNotAllowed},
		{"another name server, TCP", refusedTCP("8.8.8.8:53"), policy.AddressNotAllowed},
		{"the node's resolver by its address", refusedUDP(egresstest.ResolverAddr + ":53"), policy.UDPNotAllowed},
		{"the gateway as a name server", refusedUDP(link.Gateway.String() + ":53"), ""},
		{"DNS over TLS", refusedTCP("8.8.8.8:853"), policy.AddressNotAllowed},
		{"DNS over HTTPS by address", refusedTCP("8.8.8.8:443"), policy.AddressNotAllowed},
		{"plain address", refusedTCP(egresstest.EvilAddr + ":443"), policy.AddressNotAllowed},
		{"allowed address, other port", refusedTCP(egresstest.GoodAddr + ":22"), policy.PortNotAllowed},
		{"QUIC to an allowed address", refusedUDP(egresstest.GoodAddr + ":443"), policy.UDPNotAllowed},
		{"private service", refusedTCP(egresstest.ServiceAddr + ":80"), policy.AddressPrivate},
		{"metadata", refusedTCP(egresstest.MetadataAddr + ":80"), policy.AddressForbidden},
		{"the node's uplink address", refusedTCP(egresstest.NodeAddr + ":22"), policy.AddressForbidden},
		{"the gateway", refusedTCP(link.Gateway.String() + ":22"), policy.AddressPrivate},
		{"the name server's other port", refusedTCP(link.DNSAddr.String() + ":80"), policy.AddressPrivate},
		{"multicast name service", func() error { _ = b.refusedUDPNoWait("224.0.0.251:5353"); return nil }, policy.AddressForbidden},
		{"ping", prohibited(egresstest.GoodAddr, unix.IPPROTO_ICMP), policy.PingRefused},
		{"SCTP", prohibited(egresstest.GoodAddr, 132), policy.ProtocolRefused},
		{"GRE", prohibited(egresstest.EvilAddr, 47), policy.ProtocolRefused},
		{"frame from another address", func() error { return b.frame(0x0800, packet("10.9.9.9", egresstest.GoodAddr, 6)) }, policy.SourceForged},
		{"IPv6 frame", func() error { return b.frame(0x86dd, make([]byte, 60)) }, policy.ProtocolRefused},
		{"other frame", func() error { return b.frame(0x88b5, make([]byte, 60)) }, policy.ProtocolRefused},
		{"packet with a false length", func() error { p := packet("10.0.2.15", egresstest.GoodAddr, 6); p[2] = 0xff; return b.frame(0x0800, p) }, policy.ProtocolRefused},
		{"IPv6 socket", func() error {
			_, err := b.dial("tcp6", "[2001:db8::1]:443")
			if !errors.Is(err, syscall.ENETUNREACH) && !errors.Is(err, syscall.EADDRNOTAVAIL) && !errors.Is(err, syscall.EAFNOSUPPORT) {
				return fmt.Errorf("not unreachable: %w", err)
			}
			return nil
		}, ""},
	} {
		start := time.Now()
		err := tc.try()
		took := time.Since(start)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if took > quick {
			t.Errorf("%s took %v", tc.name, took)
		}
		if tc.reason != "" {
			d := w.find(tc.name, func(d egress.Decision) bool { return d.Reason == tc.reason })
			if d.Verdict != egress.Deny || d.Box != "b" || d.Session != "s" || d.Project != "p" {
				t.Errorf("%s: %+v", tc.name, d)
			}
		}
		t.Logf("%-40s %6.2f ms", tc.name, float64(took.Microseconds())/1000)
	}
	if err := b.Do(func() error { // loopback is as it was, in both families
		for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
			ln, err := net.Listen("tcp", addr)
			if err != nil {
				return err
			}
			c, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				return err
			}
			c.Close()
			ln.Close()
		}
		return nil
	}); err != nil {
		t.Errorf("loopback: %v", err)
	}
	if after := w.Uplink(); after != before {
		t.Errorf("%d packets left the node", after-before)
	}
	if asked := w.DNS.Asked(); len(asked) != 0 {
		t.Errorf("the resolver was asked %v", asked)
	}
}

func (b *testBox) refusedUDPNoWait(addr string) error {
	c, err := b.dial("udp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Write([]byte("x"))
	return err
}

// Names that resolve to addresses that may not be reached get no answer, whatever was said before.
func TestAnswersThatAreNotPassedOn(t *testing.T) {
	w := newWorld(t)
	w.Handle(egresstest.ServiceAddr+":80", func(net.Conn) {})
	b := w.attach(whitelist(t, []string{"rebind.test:80/tcp", "*.wild.test", "internal.test:80/tcp", "meta.test"}, egresstest.ServiceAddr+"/32:80"))
	for name, addr := range map[string]string{
		"a.wild.test": egresstest.MetadataAddr, "b.wild.test": "127.0.0.1", "c.wild.test": "10.66.0.6", "meta.test": "169.254.169.254",
		"d.wild.test": egresstest.NodeAddr, "e.wild.test": "0.0.0.0", "f.wild.test": "100.100.100.200",
	} {
		w.DNS.Set(name, addr)
		if a, err := b.lookup(name); !notFound(err) {
			t.Errorf("%s: %v, %v", name, a, err)
		}
		w.find(name, func(d egress.Decision) bool {
			return d.Verdict == egress.Deny && d.Name == name && d.Addr.String() == addr && strings.HasPrefix(string(d.Reason), "address-")
		})
	}
	// Of several addresses only the allowed ones are told.
	w.DNS.Set("g.wild.test", "10.66.0.6", egresstest.GoodAddr, "127.0.0.1")
	if a, err := b.lookup("g.wild.test"); err != nil || len(a) != 1 || a[0].Unmap().String() != egresstest.GoodAddr {
		t.Errorf("%v, %v", a, err)
	}
	// A private service passes by name where allowed_ips has its range.
	w.DNS.Set("internal.test", egresstest.ServiceAddr)
	c, err := b.dial("tcp4", b.must("internal.test").String()+":80")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestPinsAreOfOneBox(t *testing.T) {
	w := newWorld(t)
	w.DNS.Set("good.test", egresstest.GoodAddr)
	w.Handle(egresstest.GoodAddr+":7000", func(c net.Conn) { _, _ = c.Write([]byte("x")) })
	p := whitelist(t, []string{"good.test:7000"})
	a, b := w.attach(p), w.attach(p)
	addr := a.must("good.test").String() + ":7000"
	if c, err := a.dial("tcp4", addr); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if _, err := b.dial("tcp4", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a box that did not ask for the name: %v", err)
	}
	if r := a.Check(egresstest.GoodAddr, 7000, policy.TCP); !r.Allowed {
		t.Errorf("%+v", r)
	}
	if r := b.Check(egresstest.GoodAddr, 7000, policy.TCP); r.Allowed {
		t.Errorf("%+v", r)
	}
}

// A box without a way out has no device: loopback alone, and errors at once.
func TestClosedPolicyHasNoDevice(t *testing.T) {
	w := newWorld(t)
	b := w.attach(compile(t, policy.Spec{Mode: policy.Deny}))
	if _, err := b.dial("tcp4", egresstest.GoodAddr+":80"); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("got %v", err)
	}
	if err := b.Do(func() error {
		if _, err := net.InterfaceByName(link.Device); err == nil {
			return errors.New("there is a device")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	w.Handle(egresstest.GoodAddr+":80", func(c net.Conn) { _, _ = c.Write([]byte("x")) })
	if err := b.Switch(t.Context(), whitelist(t, nil, egresstest.GoodAddr)); err != nil {
		t.Fatal(err)
	}
	c, err := b.dial("tcp4", egresstest.GoodAddr+":80")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
