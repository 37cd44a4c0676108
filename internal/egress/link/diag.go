package link

import "golang.org/x/sys/unix"

const (
	sockDiagByFamily = 20
	sockDestroy      = 21
	diagReqSize      = 8 + 48
	diagMsgID        = 4 // inet_diag_msg: family, state, timer, retrans, then the id
)

// destroySockets ends the TCP connections of the socket's namespace: their readers get an error at once instead of
// waiting for ever. A kernel without the call leaves them to their own patience.
func destroySockets(sock int) {
	req := make([]byte, diagReqSize)
	req[0], req[1] = unix.AF_INET, unix.IPPROTO_TCP
	// All states but LISTEN, CLOSE and TIME_WAIT.
	native.PutUint32(req[4:], 0xfff&^(1<<10|1<<7|1<<6))
	if unix.Sendto(sock, newMessage(sockDiagByFamily, unix.NLM_F_DUMP, 1, req...).bytes(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
		return
	}
	var ids [][]byte
	buf := make([]byte, 64<<10)
dump:
	for {
		n, _, err := unix.Recvfrom(sock, buf, 0)
		if err != nil {
			return
		}
		for b := buf[:n]; len(b) >= unix.NLMSG_HDRLEN; {
			l := int(native.Uint32(b))
			if l < unix.NLMSG_HDRLEN || l > len(b) {
				return
			}
			switch native.Uint16(b[4:]) {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				break dump
			case sockDiagByFamily:
				if l >= unix.NLMSG_HDRLEN+diagMsgID+48 {
					id := append([]byte(nil), b[unix.NLMSG_HDRLEN+diagMsgID:unix.NLMSG_HDRLEN+diagMsgID+48]...)
					if local := id[4:8]; local[0] != 127 { // what talks over loopback has both its ends
						ids = append(ids, id)
					}
				}
			}
			b = b[min(len(b), (l+3)&^3):]
		}
	}
	for _, id := range ids {
		copy(req[8:], id)
		native.PutUint32(req[4:], 0xfff)
		if unix.Sendto(sock, newMessage(sockDestroy, unix.NLM_F_ACK, 2, req...).bytes(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
			return
		}
		if _, _, err := unix.Recvfrom(sock, buf, 0); err != nil {
			return
		}
	}
}
