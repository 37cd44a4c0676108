package seccomp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// insn is struct sock_filter.
type insn struct {
	code   uint16
	jt, jf uint8
	k      uint32
}

// Opcodes of classic BPF (linux/filter.h) that the filters use.
const (
	opLoad = 0x20 // ld [k]
	opAnd  = 0x54 // and #k
	opJump = 0x05 // ja k
	opJeq  = 0x15
	opJge  = 0x35
	opRet  = 0x06
)

// Offsets in struct seccomp_data.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

// maxInsns is the kernel's BPF_MAXINSNS.
const maxInsns = 4096

// span is a run of numbers that share a rule; it ends where the next begins.
type span struct {
	start uint32
	rule  *rule
}

// assemble arranges the decisions as a binary search over spans of numbers that
// share their answers. A filter is attached at every execve, and the kernel then compiles
// it (time goes with its length) and runs it once for every number, to learn which
// are allowed whatever their arguments are (time goes with the depth).
func assemble(t *table, decisions map[uint32]*rule) ([]insn, error) {
	b := builder{rets: map[uint32]label{}, rules: map[*rule]label{}}
	entry := b.search(spans(decisions))
	if t.x32 {
		// -1 is how a tracer skips a call; the kernel answers ENOSYS too.
		foreign := b.branch(opJeq, ^uint32(0), b.ret(actENOSYS), b.ret(actKill))
		entry = b.branch(opJge, x32Bit, foreign, entry)
	}
	if entry != b.here() {
		b.emit(insn{code: opJump, k: b.offset(entry)})
	}
	entry = b.emit(insn{code: opLoad, k: offNr})
	b.branch(opJeq, t.audit, entry, b.ret(actKill))
	b.emit(insn{code: opLoad, k: offArch})
	if len(b.reversed) > maxInsns {
		return nil, fmt.Errorf("seccomp filter has %d instructions, the kernel takes %d", len(b.reversed), maxInsns)
	}
	slices.Reverse(b.reversed)
	return b.reversed, nil
}

// spans cuts the whole range of numbers at every change of rule.
func spans(decisions map[uint32]*rule) []span {
	list := make([]span, 0, len(decisions)+1)
	for nr, r := range decisions {
		list = append(list, span{nr, r})
	}
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	out := []span{{0, ruleUnknown}}
	put := func(s span) {
		switch last := &out[len(out)-1]; {
		case last.rule == s.rule:
		case last.start == s.start:
			last.rule = s.rule
		default:
			out = append(out, s)
		}
	}
	for i, s := range list {
		put(s)
		if i+1 == len(list) || list[i+1].start != s.start+1 {
			put(span{s.start + 1, ruleUnknown})
		}
	}
	return out
}

func encode(prog []insn) []byte {
	b := make([]byte, 0, 8*len(prog))
	for _, i := range prog {
		b = binary.LittleEndian.AppendUint16(b, i.code)
		b = append(b, i.jt, i.jf)
		b = binary.LittleEndian.AppendUint32(b, i.k)
	}
	return b
}
