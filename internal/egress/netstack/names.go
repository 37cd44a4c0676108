package netstack

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/dsec-platform/dsec/internal/egress/link"
)

const (
	// maxAsked bounds what a box has the resolver work on at once; what is over is dropped and asked again.
	maxAsked    = 256
	answerTime  = 8 * time.Second
	dnsIdle     = 10 * time.Second
	maxDatagram = 64 << 10
)

// serveNames binds the name server's socket. Its questions are taken where packets are read, so that
// an idle box has no goroutine for them.
func (s *Stack) serveNames() error {
	wq := &waiter.Queue{}
	ep, err := s.stack.NewEndpoint(udp.ProtocolNumber, ipv4.ProtocolNumber, wq)
	if err != nil {
		return fmt.Errorf("netstack: %v", err)
	}
	s.names = ep
	e := waiter.NewFunctionEntry(waiter.ReadableEvents, func(waiter.EventMask) { s.questions(ep) })
	wq.EventRegister(&e)
	if err := ep.Bind(tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(link.DNSAddr.As4()), Port: 53}); err != nil {
		return fmt.Errorf("netstack: %v", err)
	}
	return nil
}

func (s *Stack) questions(ep tcpip.Endpoint) {
	for {
		var b bytes.Buffer
		res, err := ep.Read(&b, tcpip.ReadOptions{NeedRemoteAddr: true})
		if err != nil {
			return
		}
		if s.asked.Add(1) > maxAsked {
			s.asked.Add(-1)
			continue
		}
		s.busy.Go(func() {
			defer s.asked.Add(-1)
			ctx, cancel := context.WithTimeout(context.Background(), answerTime)
			defer cancel()
			if out := s.gate.Query(ctx, b.Bytes()); out != nil {
				_, _ = ep.Write(bytes.NewReader(out), tcpip.WriteOptions{To: &res.RemoteAddr})
			}
		})
	}
}

// dnsTCP answers questions over a connection.
func (s *Stack) dnsTCP(r *tcp.ForwarderRequest) {
	if s.asked.Add(1) > maxAsked {
		s.asked.Add(-1)
		r.Complete(true)
		return
	}
	defer s.asked.Add(-1)
	conn, err := s.accept(r)
	if err != nil {
		return
	}
	defer conn.Close()
	for {
		_ = conn.SetDeadline(time.Now().Add(dnsIdle))
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		msg := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, msg); err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		out := s.gate.Query(ctx, msg)
		cancel()
		if out == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
			return
		}
	}
}
