package netstack

import (
	"errors"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/link"
	"github.com/dsec-platform/dsec/internal/egress/policy"
	"github.com/dsec-platform/dsec/internal/egress/relay"
	"github.com/dsec-platform/dsec/internal/egress/web"
)

// tcp handles a SYN, in a goroutine of its own. What is refused gets a reset, so that connect fails
// at once; what is allowed unread is dialled first, so that connect tells the truth.
func (s *Stack) tcp(r *tcp.ForwarderRequest) {
	s.busy.Add(1)
	defer s.busy.Done()
	to := destination(r.ID())
	if to.Addr() == link.DNSAddr && to.Port() == 53 {
		s.dnsTCP(r)
		return
	}
	v := s.gate.Judge(to, policy.TCP)
	if v.Reason != "" {
		s.gate.Refuse(egress.Decision{Kind: egress.Connect, Name: v.Name, Addr: to.Addr(), Port: to.Port(), Protocol: policy.TCP, Reason: v.Reason})
		r.Complete(true)
		return
	}
	f, why := s.gate.Open(v, policy.TCP)
	if why != "" {
		s.gate.Refuse(egress.Decision{Kind: egress.Connect, Addr: to.Addr(), Port: to.Port(), Protocol: policy.TCP, Reason: why})
		r.Complete(true)
		return
	}
	if !v.Match.OK {
		box, err := s.accept(r)
		if err != nil {
			f.End(policy.ConnectionReset)
			return
		}
		f.OnCut(box.Abort)
		web.Serve(f, box)
		return
	}
	s.opaque(r, f, v)
}

func (s *Stack) opaque(r *tcp.ForwarderRequest, f *gate.Flow, v gate.Verdict) {
	up, err := f.Dial()
	if err != nil {
		f.Refuse(egress.Decision{Name: v.Name, Rule: v.Match.Rule, Reason: policy.DialFailed, Detail: gate.DialText(err)})
		r.Complete(true)
		f.End("")
		return
	}
	world, err := relay.NewKernel(up)
	var box *Conn
	if err == nil {
		box, err = s.accept(r)
	} else {
		r.Complete(true)
	}
	if err != nil {
		_ = up.Close()
		f.End(policy.ConnectionReset)
		return
	}
	if !f.Allow(v.Name, v.Match, egress.Decision{}) {
		box.Abort()
		world.Abort()
		f.End(policy.PolicyChanged)
		return
	}
	relay.Run(f, box, world)
}

func destination(id stack.TransportEndpointID) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4(id.LocalAddress.As4()), id.LocalPort)
}

// crowdBuffer is what a connection of a crowd may keep in each direction: enough for a wire of microseconds.
const crowdBuffer = 32 << 10

// accept completes the handshake with the box.
func (s *Stack) accept(r *tcp.ForwarderRequest) (*Conn, error) {
	wq := &waiter.Queue{}
	ep, err := r.CreateEndpoint(wq)
	r.Complete(false)
	if err != nil {
		return nil, errors.New(err.String())
	}
	ep.SocketOptions().SetDelayOption(false)
	if s.gate.Crowded() { // what nobody takes is kept here
		ep.SocketOptions().SetSendBufferSize(crowdBuffer, true)
		ep.SocketOptions().SetReceiveBufferSize(crowdBuffer, true)
	}
	ep.SocketOptions().SetKeepAlive(true)
	idle := tcpip.KeepaliveIdleOption(5 * time.Minute)
	_ = ep.SetSockOpt(&idle)
	return &Conn{TCPConn: gonet.NewTCPConn(wq, ep), ep: ep, wq: wq}, nil
}
