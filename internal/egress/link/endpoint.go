package link

import (
	"encoding/binary"
	"errors"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	maxFrame   = 66 << 10
	gsoMaxSize = 65471

	vnetNeedsChecksum = 1
	vnetTCPv4         = 1
)

// frames are the buffers into which packets are read: nothing is held while nothing comes.
var frames = sync.Pool{New: func() any { b := make([]byte, maxFrame); return &b }}

// Filter sees every frame of the box before the stack does, and returns whether the stack gets it. The
// frame is valid during the call.
type Filter func(frame []byte) bool

// Endpoint is a NIC of netstack over a Tap. It reads in one goroutine of Go's poller, which ends
// with Close.
type Endpoint struct {
	tap    *Tap
	conn   syscall.RawConn
	filter Filter

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher
	fd         int // -1: closed
	reading    sync.WaitGroup
}

var (
	_ stack.LinkEndpoint = (*Endpoint)(nil)
	_ stack.GSOEndpoint  = (*Endpoint)(nil)
)

// NewEndpoint makes the NIC's end; Attach starts to read.
func NewEndpoint(t *Tap, filter Filter) (*Endpoint, error) {
	c, err := t.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	e := &Endpoint{tap: t, conn: c, filter: filter}
	if err := c.Control(func(fd uintptr) { e.fd = int(fd) }); err != nil {
		return nil, err
	}
	return e, nil
}

// Shut stops reading and writing and lets go of the device. Idempotent.
func (e *Endpoint) Shut(remove bool) error {
	e.mu.Lock()
	if e.fd < 0 {
		e.mu.Unlock()
		return nil
	}
	e.fd = -1
	e.mu.Unlock()
	err := e.tap.Close(remove)
	e.reading.Wait()
	return err
}

// read takes frames until the device is closed.
func (e *Endpoint) read() {
	defer e.reading.Done()
	for {
		var buf *[]byte
		n, failed := 0, error(nil)
		err := e.conn.Read(func(fd uintptr) bool {
			buf = frames.Get().(*[]byte)
			n, failed = unix.Read(int(fd), *buf)
			if errors.Is(failed, unix.EAGAIN) {
				frames.Put(buf)
				buf = nil
				return false
			}
			return true
		})
		if err != nil || failed != nil && !errors.Is(failed, unix.EINTR) {
			if buf != nil {
				frames.Put(buf)
			}
			return // closed, or the namespace is gone
		}
		if n > vnetHdrSize {
			e.take((*buf)[vnetHdrSize:n])
		}
		frames.Put(buf)
	}
}

func (e *Endpoint) take(frame []byte) {
	if len(frame) < header.EthernetMinimumSize || !e.filter(frame) {
		return
	}
	e.mu.RLock()
	d := e.dispatcher
	e.mu.RUnlock()
	if d == nil {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(buffer.NewViewWithData(frame))})
	defer pkt.DecRef()
	if !e.ParseHeader(pkt) {
		return
	}
	// The box's kernel leaves checksums to us, and there is no wire between that could spoil them.
	pkt.RXChecksumValidated = true
	eth := header.Ethernet(pkt.LinkHeader().Slice())
	if eth.DestinationAddress() == header.EthernetBroadcastAddress {
		pkt.PktType = tcpip.PacketBroadcast
	} else {
		pkt.PktType = tcpip.PacketHost
	}
	d.DeliverNetworkPacket(eth.Type(), pkt)
}

// WritePackets implements stack.LinkWriter.
func (e *Endpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.fd < 0 {
		return 0, &tcpip.ErrClosedForSend{}
	}
	n := 0
	for _, pkt := range pkts.AsSlice() {
		hdr := vnetHeader(pkt)
		iovs := append(make([][]byte, 0, 8), hdr[:])
		for _, s := range pkt.AsSlices() {
			if len(s) > 0 {
				iovs = append(iovs, s)
			}
		}
		if _, err := unix.Writev(e.fd, iovs); err != nil {
			if n > 0 {
				return n, nil
			}
			return 0, tcpip.TranslateErrno(errno(err))
		}
		n++
	}
	return n, nil
}

func errno(err error) unix.Errno {
	if e, ok := errors.AsType[unix.Errno](err); ok {
		return e
	}
	return unix.EIO
}

// vnetHeader tells the kernel which segments and checksums are left to it.
func vnetHeader(pkt *stack.PacketBuffer) (h [vnetHdrSize]byte) {
	g := pkt.GSOOptions
	if g.Type == stack.GSONone {
		return h
	}
	binary.LittleEndian.PutUint16(h[2:], uint16(pkt.HeaderSize()))
	if g.NeedsCsum {
		h[0] = vnetNeedsChecksum
		binary.LittleEndian.PutUint16(h[6:], header.EthernetMinimumSize+g.L3HdrLen)
		binary.LittleEndian.PutUint16(h[8:], g.CsumOffset)
	}
	if g.Type == stack.GSOTCPv4 && pkt.Data().Size() > int(g.MSS) {
		h[1] = vnetTCPv4
		binary.LittleEndian.PutUint16(h[4:], g.MSS)
	}
	return h
}

// Inject writes a frame of ours to the box, as if it had come from the gateway.
func (e *Endpoint) Inject(ip []byte) {
	frame := make([]byte, vnetHdrSize+header.EthernetMinimumSize, vnetHdrSize+header.EthernetMinimumSize+len(ip))
	header.Ethernet(frame[vnetHdrSize:]).Encode(&header.EthernetFields{SrcAddr: gatewayMAC, DstAddr: boxMAC, Type: header.IPv4ProtocolNumber})
	frame = append(frame, ip...)
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.fd >= 0 {
		_, _ = unix.Write(e.fd, frame) // like any packet it may be lost
	}
}

// Attach implements stack.LinkEndpoint.
func (e *Endpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	start := d != nil && e.dispatcher == nil && e.fd >= 0
	e.dispatcher = d
	if start {
		e.reading.Add(1)
		go e.read()
	}
}

// IsAttached implements stack.LinkEndpoint.
func (e *Endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.dispatcher != nil
}

// MTU implements stack.LinkEndpoint.
func (*Endpoint) MTU() uint32 { return MTU }

// SetMTU implements stack.LinkEndpoint: it is fixed.
func (*Endpoint) SetMTU(uint32) {}

// MaxHeaderLength implements stack.LinkEndpoint.
func (*Endpoint) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress implements stack.LinkEndpoint.
func (*Endpoint) LinkAddress() tcpip.LinkAddress { return gatewayMAC }

// SetLinkAddress implements stack.LinkEndpoint: it is fixed.
func (*Endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.LinkEndpoint.
func (*Endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityResolutionRequired | stack.CapabilityRXChecksumOffload
}

// Wait implements stack.LinkEndpoint.
func (e *Endpoint) Wait() { e.reading.Wait() }

// ARPHardwareType implements stack.LinkEndpoint.
func (*Endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader implements stack.LinkEndpoint.
func (*Endpoint) AddHeader(pkt *stack.PacketBuffer) {
	header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize)).Encode(&header.EthernetFields{
		SrcAddr: gatewayMAC, DstAddr: boxMAC, Type: pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.LinkEndpoint.
func (*Endpoint) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	return ok
}

// Close implements stack.LinkEndpoint.
func (e *Endpoint) Close() { _ = e.Shut(false) }

// SetOnCloseAction implements stack.LinkEndpoint: there is none.
func (*Endpoint) SetOnCloseAction(func()) {}

// SupportedGSO implements stack.GSOEndpoint.
func (*Endpoint) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// GSOMaxSize implements stack.GSOEndpoint.
func (*Endpoint) GSOMaxSize() uint32 { return gsoMaxSize }
