package spawn

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// key is what a clone3 that is not the agent's has in its registers beyond the two that the call uses.
type key [4]uint64

func newKey() (k key, err error) {
	var b [32]byte
	if _, err = unix.Getrandom(b[:], 0); err != nil {
		return k, err
	}
	for i := range k {
		k[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	return k, nil
}

// Of struct seccomp_data and classic BPF.
const (
	insnSize = int(unsafe.Sizeof(unix.SockFilter{}))
	offNr    = 0
	offArgs  = 16
	retAllow = 0x7fff0000
	maxInsns = 4096
	// keyInsns are before the filter in admit: of the call's number, of the key's halves, and of the answer.
	keyInsns = 2 + 4*2*len(key{}) - 1 + 2
)

// admit gives a filter that lets a clone3 with the key pass, and every other call do what filter says; nil when there is
// no room for it. clone3 is refused to agents because a filter cannot see what it asks for; the launcher needs it to
// place its children, and has to be confined itself for them to be born so.
func admit(filter []byte, k key) []byte {
	if len(filter)/insnSize+keyInsns > maxInsns {
		return nil
	}
	b := make([]byte, 0, keyInsns*insnSize+len(filter))
	insn := func(code uint16, jf uint8, value uint32) {
		b = binary.NativeEndian.AppendUint16(b, code)
		b = append(b, 0, jf)
		b = binary.NativeEndian.AppendUint32(b, value)
	}
	toFilter := func() uint8 { return uint8(keyInsns - len(b)/insnSize - 1) }
	insn(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, offNr)
	insn(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, toFilter(), unix.SYS_CLONE3)
	// All halves are compared before anything depends on it: how long it takes does not tell how many were right.
	for i := range 2 * len(k) {
		insn(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, uint32(offArgs+4*(4+i)))
		insn(unix.BPF_ALU|unix.BPF_XOR|unix.BPF_K, 0, uint32(k[i/2]>>(32*(i%2))))
		if i > 0 {
			insn(unix.BPF_ALU|unix.BPF_OR|unix.BPF_X, 0, 0)
		}
		insn(unix.BPF_MISC|unix.BPF_TAX, 0, 0)
	}
	insn(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, toFilter(), 0)
	insn(unix.BPF_RET|unix.BPF_K, 0, retAllow)
	return append(b, filter...)
}

// confine makes the thread take the filter that its children are to be born with: to compile it for each of them costs a
// tenth of a small op. It takes one in its life, with the first child that wants one; false means that s wants another. The turn is held.
func (l *Launcher) confine(s *Spec) bool {
	switch {
	case l.filter != nil:
		return bytes.Equal(l.filter, s.Seccomp)
	case len(s.Seccomp) == 0:
		return true
	}
	k, err := newKey()
	if err != nil {
		return false
	}
	filter := admit(s.Seccomp, k)
	if filter == nil {
		return false
	}
	p := &program{}
	p.seccomp(filter) // by the capability of a box's root: no_new_privs is each child's own
	l.filter, l.thread.key = s.Seccomp, k
	ok := l.work(p.calls)
	runtime.KeepAlive(p)
	return ok
}
