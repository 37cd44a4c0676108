package netstack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/link"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

var (
	broadcast       = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	subnetBroadcast = netip.AddrFrom4([4]byte{10, 0, 2, 255})
)

const prohibited = header.ICMPv4AdminProhibited

// pause is how long a box that is refused too often waits at least: many packets are then read in one go, where a sleep
// for each would wake this process as often as the limit lets the box be refused.
const pause = 20 * time.Millisecond

// filter sees every frame before the stack. It lets through ARP, TCP, UDP and pings of the gateway;
// other pings and protocols are answered "administratively prohibited", forged sources not at all.
// A box that is refused too often waits here, so that its own queue overflows and not the node's time.
func (s *Stack) filter(frame []byte) bool {
	if d := s.gate.Pace(); d > 0 {
		time.Sleep(max(d, pause))
	}
	eth := header.Ethernet(frame)
	switch eth.Type() {
	case header.ARPProtocolNumber:
		s.gate.Charge()
		return true
	case header.IPv4ProtocolNumber:
	case header.IPv6ProtocolNumber:
		s.refuse(netip.Addr{}, 0, "ip6", policy.ProtocolRefused)
		return false
	default:
		s.refuse(netip.Addr{}, 0, policy.Protocol(fmt.Sprintf("ether-%#04x", uint16(eth.Type()))), policy.ProtocolRefused)
		return false
	}
	ip := header.IPv4(frame[header.EthernetMinimumSize:])
	if !ip.IsValid(len(ip)) {
		s.refuse(netip.Addr{}, 0, "ip", policy.ProtocolRefused)
		return false
	}
	src, dst := netip.AddrFrom4(ip.SourceAddress().As4()), netip.AddrFrom4(ip.DestinationAddress().As4())
	proto := ip.TransportProtocol()
	if src != link.BoxAddr {
		s.refuse(dst, 0, name(uint8(proto)), policy.SourceForged)
		return false
	}
	if dst.IsMulticast() || dst == broadcast || dst == subnetBroadcast {
		s.refuse(dst, destinationPort(ip), name(uint8(proto)), policy.AddressForbidden)
		return false // nobody answers what is sent to many
	}
	switch proto {
	case header.TCPProtocolNumber, header.UDPProtocolNumber:
		return true
	case header.ICMPv4ProtocolNumber:
		if dst == link.Gateway || dst == link.DNSAddr {
			s.gate.Charge()
			return true
		}
		// Only requests are attempts; what answers something (unreachable, reply) is not answered.
		if p := ip.Payload(); len(p) < header.ICMPv4MinimumSize || header.ICMPv4(p).Type() != header.ICMPv4Echo {
			return false
		}
		s.refuse(dst, 0, "icmp", policy.PingRefused)
	default:
		s.refuse(dst, 0, name(uint8(proto)), policy.ProtocolRefused)
	}
	s.prohibit(ip)
	return false
}

// destinationPort gives that of a first fragment of TCP or UDP, for the record.
func destinationPort(ip header.IPv4) uint16 {
	p := ip.Payload()
	if t := ip.TransportProtocol(); t != header.TCPProtocolNumber && t != header.UDPProtocolNumber || len(p) < 4 || ip.FragmentOffset() != 0 {
		return 0
	}
	return binary.BigEndian.Uint16(p[2:])
}

func name(proto uint8) policy.Protocol {
	switch proto {
	case 1:
		return "icmp"
	case 6:
		return policy.TCP
	case 17:
		return policy.UDP
	}
	return policy.Protocol(fmt.Sprintf("ip-%d", proto))
}

func (s *Stack) refuse(dst netip.Addr, port uint16, proto policy.Protocol, why policy.Reason) {
	s.gate.Refuse(egress.Decision{Kind: egress.Packet, Addr: dst, Port: port, Protocol: proto, Reason: why})
}

// prohibit answers a packet with ICMP 3/13, so that its sender fails at once.
func (s *Stack) prohibit(ip header.IPv4) {
	quote := ip[:min(len(ip), int(ip.HeaderLength())+8)]
	out := make([]byte, header.IPv4MinimumSize+header.ICMPv4MinimumSize+len(quote))
	s.ident++
	h := header.IPv4(out)
	h.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(out)), ID: s.ident, TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: ip.DestinationAddress(), DstAddr: ip.SourceAddress(),
	})
	h.SetChecksum(^h.CalculateChecksum())
	m := header.ICMPv4(out[header.IPv4MinimumSize:])
	m.SetType(header.ICMPv4DstUnreachable)
	m.SetCode(prohibited)
	copy(m[header.ICMPv4MinimumSize:], quote)
	binary.BigEndian.PutUint16(m[2:], ^checksum.Checksum(m, 0))
	s.ep.Inject(out)
}
