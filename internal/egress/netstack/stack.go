// Package netstack is the stack at the other end of a box's wire: it answers what a box sends, and
// lets out what the box's gate allows. One stack a box, so that boxes share no state that one of
// them could fill.
package netstack

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/link"
)

const (
	nic         = 1
	maxInFlight = 4096
	maxBuffer   = 1 << 20
	icmpRate    = 5000 // port-unreachable answers a second; refusals are held to the policy's limit before
)

// Stack serves one box.
type Stack struct {
	gate  *gate.Gate
	ep    *link.Endpoint
	stack *stack.Stack
	busy  sync.WaitGroup // goroutines of flows
	ident uint16         // of the packets we make; the reading goroutine's alone
	names tcpip.Endpoint // the name server's socket
	asked atomic.Int64   // questions and DNS connections in work
	once  sync.Once
	err   error
}

// New opens the device in the namespace and serves it. Found tells whether an earlier daemon had
// made it.
func New(ns *os.File, g *gate.Gate, resume bool) (s *Stack, found bool, err error) {
	tap, err := link.Open(ns, resume)
	if err != nil {
		return nil, false, err
	}
	s = &Stack{gate: g}
	if s.ep, err = link.NewEndpoint(tap, s.filter); err != nil {
		_ = tap.Close(false)
		return nil, false, err
	}
	if err := s.start(); err != nil {
		_ = s.Close(false)
		return nil, false, err
	}
	return s, tap.Found, nil
}

func (s *Stack) start() error {
	s.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{arp.NewProtocol, ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocolCUBIC, udp.NewProtocol, icmp.NewProtocol4},
	})
	st := s.stack
	st.SetICMPLimit(rate.Limit(icmpRate))
	st.SetICMPBurst(icmpRate)
	sack := tcpip.TCPSACKEnabled(true)
	// Nothing is lost between the stack and the box: an answer that is late waits for a processor, and sending
	// again would only make it later.
	minRTO := tcpip.TCPMinRTOOption(time.Second)
	recovery := tcpip.TCPRecovery(0) // without probes, for the same reason
	// A closed connection costs memory until it is forgotten, a box may make a thousand a second, and no
	// late segment wanders on this wire.
	timeWait := tcpip.TCPTimeWaitTimeoutOption(time.Second)
	linger := tcpip.TCPLingerTimeoutOption(5 * time.Second)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	for _, o := range []tcpip.SettableTransportProtocolOption{
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: 256 << 10, Max: maxBuffer},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: 256 << 10, Max: maxBuffer},
		&sack, &moderate, &minRTO, &recovery, &timeWait, &linger,
	} {
		if err := st.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("netstack: %v", err)
		}
	}
	if err := st.CreateNIC(nic, s.ep); err != nil {
		return fmt.Errorf("netstack: %v", err)
	}
	for _, a := range []netip.Addr{link.Gateway, link.DNSAddr} {
		addr := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(a.As4()), PrefixLen: link.Subnet.Bits()}}
		if err := st.AddProtocolAddress(nic, addr, stack.AddressProperties{}); err != nil {
			return fmt.Errorf("netstack: %v", err)
		}
	}
	if err := st.AddStaticNeighbor(nic, ipv4.ProtocolNumber, tcpip.AddrFrom4(link.BoxAddr.As4()), link.BoxMAC()); err != nil {
		return fmt.Errorf("netstack: %v", err)
	}
	st.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	// The stack answers for every address: whom a box may talk to is the gate's to say.
	if err := st.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("netstack: %v", err)
	}
	if err := st.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("netstack: %v", err)
	}
	st.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(st, 0, maxInFlight, s.tcp).HandlePacket)
	st.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(st, s.udp).HandlePacket)
	return s.serveNames()
}

// Close stops to serve. The gate's flows must have been cut before. With remove the device goes
// too. Idempotent.
func (s *Stack) Close(remove bool) error {
	s.once.Do(func() {
		s.err = s.ep.Shut(remove)
		if s.stack != nil {
			if s.names != nil {
				s.names.Close()
			}
			s.stack.Close()
			s.busy.Wait()
			s.stack.Wait()
		}
	})
	return s.err
}
