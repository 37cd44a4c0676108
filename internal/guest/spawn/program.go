package spawn

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// program is the list of calls under construction.
type program struct {
	calls  []call
	steps  []Step // of each call
	keep   []any  // pointers to what the calls point to, so that it stays on the heap
	chains [][2]int
}

// programs are kept for later starts: their room is most of what a start takes.
var programs = sync.Pool{New: func() any {
	return &program{calls: make([]call, 0, 80), steps: make([]Step, 0, 80), keep: make([]any, 0, 40)}
}}

// free ends the use of a program whose calls have all been made.
func (p *program) free() {
	clear(p.calls) // they point into each other, and keep to what came with the request
	clear(p.keep)
	p.calls, p.steps, p.keep, p.chains = p.calls[:0], p.steps[:0], p.keep[:0], p.chains[:0]
	programs.Put(p)
}

// add is not inlined, nor is string: their variables, once for each of the many calls, would make
// frames of a kilobyte, for which the goroutine of each start would need a larger stack.
//
//go:noinline
func (p *program) add(step Step, nr uintptr, args ...uintptr) *call {
	c := call{nr: nr}
	copy(c.args[:], args)
	p.calls = append(p.calls, c)
	p.steps = append(p.steps, step)
	return &p.calls[len(p.calls)-1]
}

// lax adds a call whose failure does not matter.
func (p *program) lax(step Step, nr uintptr, args ...uintptr) { p.add(step, nr, args...).lax = 1 }

//go:noinline
func (p *program) string(s string) uintptr {
	b := make([]byte, len(s)+1)
	copy(b, s)
	return keepPtr(p, &b[0])
}

// vector makes a NULL-terminated array of C strings in two allocations.
func (p *program) vector(list []string) uintptr {
	n := 0
	for _, s := range list {
		n += len(s) + 1
	}
	b := make([]byte, 0, n)
	v := make([]*byte, len(list)+1)
	for i, s := range list {
		at := len(b)
		b = append(append(b, s...), 0)
		v[i] = &b[at]
	}
	return keepPtr(p, &v[0])
}

func keepPtr[T any](p *program, v *T) uintptr {
	p.keep = append(p.keep, v)
	return uintptr(unsafe.Pointer(v))
}

var zero = []byte("0")

func (p *program) cgroups(s *Spec, byItself bool) {
	if byItself {
		for _, fd := range s.Tasks {
			p.add(StepCgroup, unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&zero[0])), 1)
		}
	}
	if s.ResetOOMScore {
		open := p.add(StepLimits, unix.SYS_OPENAT, atFDCWD, p.string("/proc/self/oom_score_adj"), unix.O_WRONLY|unix.O_CLOEXEC)
		open.lax = 1
		at := len(p.calls) - 1
		p.lax(StepLimits, unix.SYS_WRITE, 0, uintptr(unsafe.Pointer(&zero[0])), 1)
		p.chain(at, at+1)
	}
}

// chain makes the result of call from the first argument of call to.
func (p *program) chain(from, to int) { p.chains = append(p.chains, [2]int{from, to}) }

// link sets the pointers between calls, when the list has stopped growing.
func (p *program) link() []call {
	for _, c := range p.chains {
		p.calls[c[0]].out = &p.calls[c[1]].args[0]
	}
	return p.calls
}

// atFDCWD is AT_FDCWD as a register holds it.
const atFDCWD = ^uintptr(99)
