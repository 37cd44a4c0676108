package guestproto

import (
	"encoding/binary"
	"errors"
	"io"
	"syscall"
)

// A setup message on the wire is a 32-bit length and the encoded message; its
// descriptors travel with the first byte. The preamble is sent apart from it:
// a plain read of the preamble would otherwise throw the descriptors away.

// SendSetup writes m with descriptors to the socket. They stay open here.
func SendSetup(fd int, m Message, fds []int) error {
	buf := Marshal(make([]byte, 4, 4096), m)
	if len(buf)-4 > MaxSetup || len(fds) > MaxSetupFDs {
		return ErrTooLong
	}
	binary.LittleEndian.PutUint32(buf, uint32(len(buf)-4))
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	for len(buf) > 0 {
		n, err := syscall.SendmsgN(fd, buf, rights, nil, syscall.MSG_NOSIGNAL)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			if err := waitFD(fd, pollOut); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			buf, rights = buf[n:], nil
		}
	}
	return nil
}

// RecvSetup reads one message into m, and its descriptors, which are close-on-exec and
// belong to the caller. On an error none stays open.
func RecvSetup(fd int, m Message) (fds []int, err error) {
	defer func() {
		if err != nil {
			for _, f := range fds {
				syscall.Close(f)
			}
			fds = nil
		}
	}()
	buf := make([]byte, 4, 4096)
	oob := make([]byte, syscall.CmsgSpace(MaxSetupFDs*4))
	size := -1
	for got := 0; size < 0 || got < 4+size; {
		n, oobn, flags, err := recvmsg(fd, buf[got:], oob)
		if err != nil {
			return fds, err
		}
		more, err := rightsOf(oob[:oobn])
		fds = append(fds, more...)
		if err != nil || flags&syscall.MSG_CTRUNC != 0 {
			return fds, ErrBadMessage
		}
		if n == 0 {
			return fds, io.ErrUnexpectedEOF
		}
		got += n
		if size < 0 && got == 4 {
			if size = int(binary.LittleEndian.Uint32(buf)); size > MaxSetup {
				return fds, ErrTooLong
			}
			buf = append(buf, make([]byte, size)...)
		}
	}
	return fds, Unmarshal(buf[4:], m)
}

func recvmsg(fd int, buf, oob []byte) (n, oobn, flags int, err error) {
	for {
		n, oobn, flags, _, err = syscall.Recvmsg(fd, buf, oob, syscall.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			if err := waitFD(fd, pollIn); err != nil {
				return 0, 0, 0, err
			}
		default:
			return n, oobn, flags, err
		}
	}
}

func rightsOf(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range msgs {
		got, err := syscall.ParseUnixRights(&msgs[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}

// ReadSetupReply reads one message without descriptors from a stream.
func ReadSetupReply(r io.Reader, m *SetupReply) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxSetupReply {
		return ErrTooLong
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return Unmarshal(body, m)
}

// maxSetupReply bounds what a hostile guest can make a daemon read.
const maxSetupReply = 64 << 10
