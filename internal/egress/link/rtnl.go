package link

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

var native = binary.NativeEndian

// message is one netlink request under construction.
type message struct{ b []byte }

func newMessage(kind, flags uint16, seq uint32, body ...byte) *message {
	b := make([]byte, unix.NLMSG_HDRLEN, 128)
	native.PutUint16(b[4:], kind)
	native.PutUint16(b[6:], flags|unix.NLM_F_REQUEST)
	native.PutUint32(b[8:], seq)
	return &message{append(b, body...)}
}

func (m *message) attr(kind uint16, value []byte) *message {
	m.b = native.AppendUint16(m.b, uint16(4+len(value)))
	m.b = native.AppendUint16(m.b, kind)
	m.b = append(m.b, value...)
	for len(m.b)%4 != 0 {
		m.b = append(m.b, 0)
	}
	return m
}

func (m *message) u32(kind uint16, v uint32) *message {
	return m.attr(kind, native.AppendUint32(nil, v))
}

func (m *message) ip(kind uint16, a netip.Addr) *message { return m.attr(kind, a.AsSlice()) }

func (m *message) bytes() []byte {
	native.PutUint32(m.b, uint32(len(m.b)))
	return m.b
}

// linkIndex gives the index of a device of the socket's namespace, 0 when there is none.
func linkIndex(sock int, name string) int {
	m := newMessage(unix.RTM_GETLINK, 0, 1, make([]byte, unix.SizeofIfInfomsg)...).attr(unix.IFLA_IFNAME, append([]byte(name), 0))
	if unix.Sendto(sock, m.bytes(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return 0
	}
	buf := make([]byte, 16<<10)
	n, _, err := unix.Recvfrom(sock, buf, 0)
	if err != nil || n < unix.NLMSG_HDRLEN+8 || native.Uint16(buf[4:]) != unix.RTM_NEWLINK {
		return 0
	}
	return int(native.Uint32(buf[unix.NLMSG_HDRLEN+4:]))
}

func ifinfo(index int) []byte {
	b := make([]byte, unix.SizeofIfInfomsg)
	native.PutUint32(b[4:], uint32(index))
	native.PutUint32(b[8:], unix.IFF_UP)
	native.PutUint32(b[12:], unix.IFF_UP)
	return b
}

// setUp brings up loopback and the device with its addresses, neighbours and route, in one go; each part may
// be there already.
func setUp(sock int) error {
	index := linkIndex(sock, Device)
	if index == 0 {
		return fmt.Errorf("the device %s is not there", Device)
	}
	const put = unix.NLM_F_ACK | unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	idx := native.AppendUint32(nil, uint32(index))
	addr := append([]byte{unix.AF_INET, byte(Subnet.Bits()), 0, 0}, idx...)
	neigh := append(append([]byte{unix.AF_INET, 0, 0, 0}, idx...), 0x80, 0, 0, 0) // NUD_PERMANENT
	route := []byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
	msgs := []*message{
		newMessage(unix.RTM_NEWLINK, unix.NLM_F_ACK, 1, ifinfo(1)...),
		newMessage(unix.RTM_NEWLINK, unix.NLM_F_ACK, 2, ifinfo(index)...).
			attr(unix.IFLA_ADDRESS, []byte(boxMAC)).u32(unix.IFLA_MTU, MTU).u32(unix.IFLA_TXQLEN, queueLen),
		newMessage(unix.RTM_NEWADDR, put, 3, addr...).ip(unix.IFA_LOCAL, BoxAddr).ip(unix.IFA_ADDRESS, BoxAddr),
		newMessage(unix.RTM_NEWNEIGH, put, 4, neigh...).ip(unix.NDA_DST, Gateway).attr(unix.NDA_LLADDR, []byte(gatewayMAC)),
		newMessage(unix.RTM_NEWNEIGH, put, 5, neigh...).ip(unix.NDA_DST, DNSAddr).attr(unix.NDA_LLADDR, []byte(gatewayMAC)),
		newMessage(unix.RTM_NEWROUTE, put, 6, route...).ip(unix.RTA_GATEWAY, Gateway).u32(unix.RTA_OIF, uint32(index)),
	}
	var out []byte
	for _, m := range msgs {
		out = append(out, m.bytes()...)
	}
	if err := unix.Sendto(sock, out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("set up %s: %w", Device, err)
	}
	return acks(sock, len(msgs))
}

// acks reads n acknowledgements and gives the first error.
func acks(sock, n int) error {
	var first error
	buf := make([]byte, 16<<10)
	for n > 0 {
		size, _, err := unix.Recvfrom(sock, buf, 0)
		if err != nil {
			return err
		}
		for b := buf[:size]; len(b) >= unix.NLMSG_HDRLEN+4; {
			l := int(native.Uint32(b))
			if l < unix.NLMSG_HDRLEN || l > len(b) {
				break
			}
			if native.Uint16(b[4:]) == unix.NLMSG_ERROR {
				n--
				if e := -int32(native.Uint32(b[unix.NLMSG_HDRLEN:])); e != 0 && first == nil {
					first = fmt.Errorf("set up %s, step %d: %w", Device, native.Uint32(b[8:]), unix.Errno(e))
				}
			}
			b = b[min(len(b), (l+3)&^3):]
		}
	}
	return first
}
