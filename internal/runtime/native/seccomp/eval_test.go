package seccomp

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// call is struct seccomp_data.
type call struct {
	nr, arch uint32
	args     [6]uint64
}

// eval runs a filter as the kernel does and gives its answer and the number of
// instructions it took.
func eval(t testing.TB, filter []byte, c call) (action uint32, steps int) {
	t.Helper()
	data := binary.LittleEndian.AppendUint32(nil, c.nr)
	data = binary.LittleEndian.AppendUint32(data, c.arch)
	data = binary.LittleEndian.AppendUint64(data, 0xdead)
	for _, a := range c.args {
		data = binary.LittleEndian.AppendUint64(data, a)
	}
	var a uint32
	for pc := 0; ; pc++ {
		steps++
		if 8*pc+8 > len(filter) {
			t.Fatalf("filter runs past its end at %d", pc)
		}
		code, k := binary.LittleEndian.Uint16(filter[8*pc:]), binary.LittleEndian.Uint32(filter[8*pc+4:])
		branch := func(hold bool) {
			if hold {
				pc += int(filter[8*pc+2])
			} else {
				pc += int(filter[8*pc+3])
			}
		}
		switch code {
		case opLoad:
			a = binary.LittleEndian.Uint32(data[k:])
		case opAnd:
			a &= k
		case opJump:
			pc += int(k)
		case opJeq:
			branch(a == k)
		case opJge:
			branch(a >= k)
		case opRet:
			return k, steps
		default:
			t.Fatalf("unknown opcode %#x at %d", code, pc)
		}
	}
}

func actionName(a uint32) string {
	switch a {
	case actAllow:
		return "allow"
	case actKill:
		return "kill"
	}
	return fmt.Sprintf("errno %d", a&0xffff)
}
