package netstack

import (
	"net"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/dsec-platform/dsec/internal/egress"
	"github.com/dsec-platform/dsec/internal/egress/gate"
	"github.com/dsec-platform/dsec/internal/egress/policy"
)

// udpIdle ends a flow of datagrams that nobody uses.
const udpIdle = 60 * time.Second

// udp handles the first datagram of a flow, where packets are read. What is refused is answered
// "port unreachable" (false).
func (s *Stack) udp(r *udp.ForwarderRequest) bool {
	to := destination(r.ID())
	d := egress.Decision{Kind: egress.Connect, Addr: to.Addr(), Port: to.Port(), Protocol: policy.UDP}
	v := s.gate.Judge(to, policy.UDP)
	if v.Reason != "" {
		d.Name, d.Reason = v.Name, v.Reason
		s.gate.Refuse(d)
		return false
	}
	f, why := s.gate.Open(v, policy.UDP)
	if why != "" {
		d.Reason = why
		s.gate.Refuse(d)
		return false
	}
	wq := &waiter.Queue{}
	ep, err := r.CreateEndpoint(wq)
	if err != nil {
		f.End(policy.ConnectionReset)
		return false
	}
	box := gonet.NewUDPConn(wq, ep)
	s.busy.Go(func() { datagrams(f, box, v) })
	return true
}

// datagrams passes a flow's datagrams on until it is idle or cut.
func datagrams(f *gate.Flow, box net.Conn, v gate.Verdict) {
	f.OnCut(func() { _ = box.Close() })
	defer box.Close()
	world, err := f.Dial()
	if err != nil {
		f.Refuse(egress.Decision{Name: v.Name, Rule: v.Match.Rule, Reason: policy.DialFailed, Detail: gate.DialText(err)})
		f.End("")
		return
	}
	defer world.Close()
	f.OnCut(func() { _ = world.Close() })
	if !f.Allow(v.Name, v.Match, egress.Decision{}) {
		f.End(policy.PolicyChanged)
		return
	}
	var wg sync.WaitGroup
	copyTo := func(dst, src net.Conn, moved func(int)) {
		buf := make([]byte, maxDatagram)
		for {
			_ = src.SetReadDeadline(time.Now().Add(udpIdle))
			n, err := src.Read(buf)
			if err != nil {
				break
			}
			_ = dst.SetReadDeadline(time.Now().Add(udpIdle)) // one direction keeps the other alive
			if _, err := dst.Write(buf[:n]); err != nil {
				break
			}
			moved(n)
		}
		_ = src.Close()
		_ = dst.Close()
	}
	wg.Go(func() { copyTo(box, world, f.Received) })
	copyTo(world, box, f.Sent)
	wg.Wait()
	f.End("")
}
