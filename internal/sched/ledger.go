package sched

import (
	"fmt"
	"math"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Demand is what one box asks a node to promise.
type Demand struct {
	Memory int64   // bytes
	CPU    float64 // cores
}

// Ratios say how often a resource may be promised. Memory above 1.0 is refused
// by NewLedger: memory that was promised twice ends in the kernel killing a
// box that kept within its limit.
type Ratios struct {
	Memory float64
	CPU    float64
}

// DefaultRatios promise memory once and CPU one and a half times.
var DefaultRatios = Ratios{Memory: 1.0, CPU: 1.5}

// Ledger keeps a node's promises. Make one with NewLedger.
type Ledger struct {
	total    Demand // what may be promised, ratios applied
	promised Demand
	milli    int64 // promised CPU in thousandths: sums of floats drift
}

// NewLedger makes the ledger of a node that has total. Zero ratios mean the defaults.
func NewLedger(total Demand, r Ratios) (*Ledger, error) {
	if r.Memory == 0 {
		r.Memory = DefaultRatios.Memory
	}
	if r.CPU == 0 {
		r.CPU = DefaultRatios.CPU
	}
	if r.Memory < 0 || r.Memory > 1 || math.IsNaN(r.Memory) {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "field scheduler_config.memory_overcommit_ratio",
			"use a value above 0 and at most 1.0", "%v would promise memory more than once", r.Memory)
	}
	if r.CPU < 0 || math.IsNaN(r.CPU) || math.IsInf(r.CPU, 0) {
		return nil, errdefs.Userf(errdefs.InvalidArgument, "field scheduler_config.cpu_overcommit_ratio",
			"use a positive number such as 1.5", "%v is not a ratio", r.CPU)
	}
	return &Ledger{total: Demand{Memory: int64(float64(total.Memory) * r.Memory), CPU: total.CPU * r.CPU}}, nil
}

// Total is what may be promised.
func (l *Ledger) Total() Demand { return l.total }

// Promised is what is promised now.
func (l *Ledger) Promised() Demand {
	return Demand{Memory: l.promised.Memory, CPU: float64(l.milli) / 1000}
}

// Admit promises d, or says why not: node_full (a limit, retryable) when it has to wait
// for others, a user error when it could never fit.
func (l *Ledger) Admit(d Demand) error { return l.Replace(Demand{}, d) }

// Release takes a promise back. Only what was admitted may be released.
func (l *Ledger) Release(d Demand) {
	l.promised.Memory -= d.Memory
	l.milli -= millis(d.CPU)
	if l.promised.Memory < 0 || l.milli < 0 {
		panic(fmt.Sprintf("sched: released %+v that was not promised", d))
	}
}

// Replace swaps an old promise for a new one, as a claim of a pooled box does:
// only the difference must fit. On an error the old promise stands.
func (l *Ledger) Replace(old, d Demand) error {
	if d.Memory < 0 || d.CPU < 0 || math.IsNaN(d.CPU) || math.IsInf(d.CPU, 0) {
		return errdefs.Userf(errdefs.InvalidArgument, "limits", "ask for positive limits", "memory %d and cpu %v cannot be promised", d.Memory, d.CPU)
	}
	if d.Memory > l.total.Memory || millis(d.CPU) > millis(l.total.CPU) {
		what, all, field := "memory "+size(d.Memory), size(l.total.Memory), "mem_limit"
		if d.Memory <= l.total.Memory {
			what, all, field = fmt.Sprintf("cpu %.3g", d.CPU), fmt.Sprintf("%.3g", l.total.CPU), "cpu_request"
		}
		e := errdefs.Userf(errdefs.NodeFull, "limits", "lower "+field+", or use a larger machine", "%s can never fit: the node may promise %s in all", what, all)
		e.Scope = errdefs.ScopeNode
		return e
	}
	mem := l.promised.Memory - old.Memory + d.Memory
	milli := l.milli - millis(old.CPU) + millis(d.CPU)
	if d.Memory > old.Memory && mem > l.total.Memory {
		return full("memory", size(l.total.Memory-(l.promised.Memory-old.Memory)), size(d.Memory), size(l.total.Memory))
	}
	if d.CPU > old.CPU && milli > millis(l.total.CPU) {
		free := float64(millis(l.total.CPU)-(l.milli-millis(old.CPU))) / 1000
		return full("cpu", fmt.Sprintf("%.3g", free), fmt.Sprintf("%.3g", d.CPU), fmt.Sprintf("%.3g", l.total.CPU))
	}
	l.promised.Memory, l.milli = mem, milli
	return nil
}

// Never tells whether err, from Admit or Replace, means that waiting cannot help.
func Never(err error) bool {
	e := errdefs.From(err)
	return e != nil && e.Class == errdefs.User
}

func full(what, free, asked, total string) error {
	e := errdefs.Limitf(errdefs.NodeFull, what, "it is tried again when another session ends; stop one or ask for less to be sooner",
		"%s asked, %s of %s left to promise", asked, free, total)
	e.Scope = errdefs.ScopeNode
	e.Retryable = true
	return e
}

func millis(cpu float64) int64 { return int64(math.Round(cpu * 1000)) }

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.4gGi", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.4gMi", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%dKi", n>>10)
}
