package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dsec-platform/dsec/internal/errdefs"
)

// Check tells whether a resolved spec can start here. What this release cannot
// do yet, and what breaks out of a box, is refused with an *errdefs.Error that
// names the field and the remedy; it is never ignored. Findings are things that
// are taken but do not act yet. offered are the runtimes of this node; none
// means native alone.
func Check(s *Sandbox, offered ...string) ([]Finding, error) {
	if err := Validate(s); err != nil {
		return nil, err
	}
	if len(offered) == 0 {
		offered = []string{RuntimeNative}
	}
	if !slices.Contains(offered, s.Runtime) {
		return nil, later("runtime", "use runtime: "+strings.Join(offered, " or "), "the runtime %q is not offered by this release", s.Runtime)
	}
	for i, m := range s.FS.Mounts {
		field := fmt.Sprintf("fs.mounts[%d]", i)
		if why := escapes(m.Source, nil); why != "" {
			return nil, errdefs.Policyf(errdefs.Forbidden, "field "+field+".source", "mount a directory that holds data alone", "%s %s", m.Source, why)
		}
		if m.ReadOnly != nil && !*m.ReadOnly {
			return nil, errdefs.Policyf(errdefs.Forbidden, "field "+field+".readonly", "leave it out; write into fs.writable_dirs", "%s would be shared writable between boxes", m.Source)
		}
	}
	var out []Finding
	if n := len(s.Network.AllowedDomains) + len(s.Network.AllowedIPs); n > 0 && !s.Network.Opens() {
		out = append(out, Finding{Severity: Warning, Field: "network", Rule: "egress-list-unused",
			Message: fmt.Sprintf("egress_policy deny lets nothing out, so the %d allowed names and addresses do not act", n),
			Remedy:  "remove them, or write egress_policy: whitelist"})
	}
	return out, nil
}

// CheckScheduler is Check for a resolved scheduler_config.
func CheckScheduler(s *Scheduler) ([]Finding, error) {
	if err := ValidateScheduler(s); err != nil {
		return nil, err
	}
	if s.MemoryOvercommitRatio > 1 {
		return nil, errdefs.Policyf(errdefs.Forbidden, "field memory_overcommit_ratio", "write memory_overcommit_ratio: 1.0", "memory is promised once; a ratio of %g would let one box's memory be killed for another's", s.MemoryOvercommitRatio)
	}
	if len(s.PriorityLevels) == 0 {
		return nil, nil
	}
	return []Finding{{Severity: Warning, Field: "priority_levels", Rule: "priority-not-acting",
		Message: "the queue is first in, first out in this release; the weights are kept but do not act",
		Remedy:  "nothing to do; do not rely on them yet"}}, nil
}

func later(field, remedy, format string, args ...any) error {
	return errdefs.Userf(errdefs.Unsupported, "field "+field, remedy, format, args...)
}
