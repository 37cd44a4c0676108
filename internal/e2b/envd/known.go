package envd

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/dsec-platform/dsec/gen/process"
	"github.com/dsec-platform/dsec/internal/e2b"
	"github.com/dsec-platform/dsec/internal/errdefs"
	"github.com/dsec-platform/dsec/internal/guestproto"
)

// known remembers which operation a process is, so that not every call about one has to list
// all. The guest is the truth: what is remembered is checked, and what is not is looked for.
type known struct {
	mu sync.Mutex
	at map[pidKey]*knownOp
}

type pidKey struct {
	sandbox string
	pid     uint32
}

// knownOp is an operation and the state of its input.
type knownOp struct {
	op string
	// input is held by who writes; it holds the next offset once that is known, else -1.
	input chan int64
}

// maxKnown bounds what is remembered. Any may be forgotten.
const maxKnown = 16 << 10

func (k *known) init() { k.at = map[pidKey]*knownOp{} }

func (k *known) add(sandbox string, pid int, op string) *knownOp {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := pidKey{sandbox, uint32(pid)}
	if o := k.at[key]; o != nil && o.op == op {
		return o
	}
	if len(k.at) >= maxKnown {
		for other := range k.at {
			delete(k.at, other)
			break
		}
	}
	o := &knownOp{op: op, input: make(chan int64, 1)}
	o.input <- -1
	k.at[key] = o
	return o
}

func (k *known) get(sandbox string, pid uint32) *knownOp {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at[pidKey{sandbox, pid}]
}

func (k *known) drop(sandbox string, pid uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.at, pidKey{sandbox, pid})
}

// found is a process that runs.
type found struct {
	*knownOp
	info *guestproto.OpInfo
}

// find gives the process that a selector means.
func (p *processes) find(ctx context.Context, g guestAPI, s *Sandbox, sel *process.ProcessSelector) (*found, error) {
	switch sel.GetSelector().(type) {
	case *process.ProcessSelector_Pid:
		if o := p.known.get(s.ID, sel.GetPid()); o != nil {
			info, err := g.Get(ctx, o.op)
			if err == nil && info.Running && uint32(info.Pid) == sel.GetPid() {
				return &found{o, info}, nil
			}
			if err != nil && !errors.Is(err, errdefs.ErrOpUnknown) {
				return nil, err
			}
			p.known.drop(s.ID, sel.GetPid())
		}
		return p.search(ctx, g, s, "process "+strconv.Itoa(int(sel.GetPid())), func(op *guestproto.OpInfo) bool { return uint32(op.Pid) == sel.GetPid() })
	case *process.ProcessSelector_Tag:
		return p.search(ctx, g, s, "process with tag "+e2b.Clip(sel.GetTag()), func(op *guestproto.OpInfo) bool {
			tag := readNote(op.Note).Tag
			return tag != nil && *tag == sel.GetTag()
		})
	}
	return nil, bad("process", "give its pid or its tag", "the request names no process")
}

// search goes through what runs.
func (p *processes) search(ctx context.Context, g guestAPI, s *Sandbox, what string, fits func(*guestproto.OpInfo) bool) (*found, error) {
	ops, err := g.List(ctx)
	if err != nil {
		return nil, err
	}
	for i := range ops {
		if op := &ops[i]; op.Running && op.Pid > 0 && fits(op) {
			return &found{p.known.add(s.ID, op.Pid, op.OpID), op}, nil
		}
	}
	return nil, errdefs.Userf(errdefs.NotFound, what, "list the processes", "there is none that runs")
}
