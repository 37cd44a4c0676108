package seccomp

// builder writes a program from its end to its start: jumps of classic BPF only
// go forward, so that every target is known when its jump is written.
type builder struct {
	reversed []insn
	rets     map[uint32]label
	rules    map[*rule]label
}

// label names an instruction by its distance from the program's end.
type label int

// reach keeps a margin to the 255 instructions of a conditional jump, because
// bringing one target near moves the other away.
const reach = 250

func (b *builder) here() label              { return label(len(b.reversed)) }
func (b *builder) offset(l label) uint32    { return uint32(len(b.reversed) - int(l)) }
func (b *builder) isNear(l label) bool      { return b.offset(l) <= reach }
func (b *builder) emit(i insn) label        { b.reversed = append(b.reversed, i); return b.here() }
func (b *builder) load(offset uint32) label { return b.emit(insn{code: opLoad, k: offset}) }

// ret gives an instruction near by that ends the program with action.
func (b *builder) ret(action uint32) label {
	l, ok := b.rets[action]
	if !ok || !b.isNear(l) {
		l = b.emit(insn{code: opRet, k: action})
		b.rets[action] = l
	}
	return l
}

// near gives l, or an instruction near by that jumps there.
func (b *builder) near(l label) label {
	if b.isNear(l) {
		return l
	}
	return b.emit(insn{code: opJump, k: b.offset(l)})
}

// branch compares A with k.
func (b *builder) branch(code uint16, k uint32, hold, fail label) label {
	hold, fail = b.near(hold), b.near(fail)
	return b.emit(insn{code: code, k: k, jt: uint8(b.offset(hold)), jf: uint8(b.offset(fail))})
}

// search finds the span of the number in A, and goes to its rule.
func (b *builder) search(list []span) label {
	if len(list) == 1 {
		return b.rule(list[0].rule)
	}
	mid := middle(list)
	high := b.search(list[mid:])
	low := b.search(list[:mid])
	return b.branch(opJge, list[mid].start, high, low)
}

// middle splits a list so that both sides have as many numbers, as near as can be:
// the kernel asks for every number when a filter is attached.
func middle(list []span) int {
	first, last := list[0].start, list[len(list)-1].start
	mid := 1
	for mid < len(list)-1 && list[mid].start-first < last-list[mid].start {
		mid++
	}
	return mid
}

// rule writes a rule: its clauses in order, then its default.
func (b *builder) rule(r *rule) label {
	if len(r.clauses) == 0 {
		return b.ret(r.action)
	}
	if l, ok := b.rules[r]; ok {
		return l
	}
	next := b.ret(r.action) // the clause after the one being written
	nextLoaded, nextWord := next, test{arg: -1}
	for i := len(r.clauses) - 1; i >= 0; i-- {
		c := r.clauses[i]
		then := b.ret(c.action)
		for j := len(c.tests) - 1; j >= 0; j-- {
			t, fail := c.tests[j], next
			if j == 0 && t.sameWord(nextWord) {
				fail = nextLoaded // A holds what the next clause asks for
			}
			then = b.branch(opJeq, t.value, then, fail)
			if j == 0 {
				nextLoaded, nextWord = then, t
			}
			if t.mask != ^uint32(0) {
				b.emit(insn{code: opAnd, k: t.mask})
			}
			// What follows a load is the instruction written before it.
			then = b.load(t.offset())
		}
		next = then
	}
	b.rules[r] = next
	return next
}
