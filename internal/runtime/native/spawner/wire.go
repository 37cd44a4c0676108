// Package spawner forks the guests. It is a process of its own because a fork
// costs with the size of the forker: the daemon has a large heap and thousands
// of descriptors, the spawner has next to nothing. It is the parent of every
// box and outlives the daemon that started it; when it dies itself, the boxes
// live on under the machine's init and a new spawner serves the next creates.
//
// The daemon connects over a SEQPACKET socket; each connection carries one
// request at a time. The package is linked into the spawner's binary: standard
// library, x/sys and the codec only.
package spawner

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dsec-platform/dsec/internal/guestproto"
)

// ListenFD is the descriptor of the listening socket that the daemon passes at the start.
const ListenFD = 3

// maxJoins bounds what a child's list of calls has room for.
const maxJoins = 4

// Kind of a request.
type Kind uint8

const (
	KindSpawn Kind = 1
	// KindQuit ends the spawner if it has no children; otherwise it is an error EBUSY.
	KindQuit Kind = 2
)

// Request asks for one guest.
type Request struct {
	Kind Kind
	// Base is the first host id of the box's range, Count its length.
	Base, Count uint32
	// Joins is the number of v1 `tasks` files among the descriptors.
	Joins int
	// The descriptors travel beside the message, in this order.
	Listen, Exe, Cgroup int
	// Join are the v1 `tasks` files that the guest moves itself into.
	Join []int
}

// Reply to a request. PidFD is -1 without a child.
type Reply struct {
	Pid   int
	Errno syscall.Errno
	Step  string // what failed
	PidFD int
}

// EncodeFields writes the message.
func (r *Request) EncodeFields(e *guestproto.Encoder) {
	e.Uint(1, uint64(r.Kind))
	e.Uint(2, uint64(r.Base))
	e.Uint(3, uint64(r.Count))
	e.Uint(4, uint64(len(r.Join)))
}

// DecodeFields reads the message.
func (r *Request) DecodeFields(d *guestproto.Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			r.Kind = Kind(d.UintMax(255))
		case 2:
			r.Base = uint32(d.UintMax(1<<32 - 1))
		case 3:
			r.Count = uint32(d.UintMax(1<<32 - 1))
		case 4:
			r.Joins = int(d.UintMax(maxJoins))
		}
	}
}

// FDs are the descriptors to send with a spawn request.
func (r *Request) FDs() []int {
	return append([]int{r.Listen, r.Exe, r.Cgroup}, r.Join...)
}

// SetFDs takes the received descriptors.
func (r *Request) SetFDs(fds []int) error {
	if len(fds) != 3+r.Joins {
		return errors.New("spawner: wrong number of descriptors")
	}
	r.Listen, r.Exe, r.Cgroup = fds[0], fds[1], fds[2]
	r.Join = fds[3:]
	return nil
}

// EncodeFields writes the reply.
func (r *Reply) EncodeFields(e *guestproto.Encoder) {
	e.Bool(4, true) // an empty packet would look like the end of the connection
	e.Uint(1, uint64(r.Pid))
	e.Uint(2, uint64(r.Errno))
	e.String(3, r.Step)
}

// DecodeFields reads the reply.
func (r *Reply) DecodeFields(d *guestproto.Decoder) {
	for d.Next() {
		switch d.Field() {
		case 1:
			r.Pid = int(d.UintMax(1 << 31))
		case 2:
			r.Errno = syscall.Errno(d.UintMax(4096))
		case 3:
			r.Step = d.String(256)
		}
	}
}

// ParseRights gives the descriptors in control data.
func ParseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var fds []int
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, got...)
	}
	return fds, nil
}
